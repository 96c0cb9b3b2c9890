//! Properties, as the property collector answers them.

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::tree;

use super::{Call, Task, VCenter, Vm, found, refused, xml};

/// The state of a property.
enum Property {
    /// Its value as XML.
    Value(String),
    /// The property is unset.
    Unset,
    /// The fault that vCenter reports for it.
    Missing(String),
}

impl VCenter {
    /// Retrieves properties of an object, and of the objects that one of its properties lists.
    pub(super) fn retrieve(&mut self, call: &Call, has_ended: bool) -> Reply {
        assert_eq!(call.this, "pc-1");
        let set = tree::first(&call.element, "specSet").expect("a set");
        let wanted: Vec<(&str, Vec<&str>)> = tree::all(set, "propSet")
            .into_iter()
            .map(|set| {
                let paths = tree::all(set, "pathSet").into_iter().map(tree::own_text);
                (tree::text(set, "type"), paths.collect())
            })
            .collect();
        let object = tree::first(set, "objectSet/obj").expect("an object");
        let from = (
            object["@type"].as_str().expect("a type").to_owned(),
            tree::own_text(object).to_owned(),
        );
        if !self.exists(&from) {
            if set.get("reportMissingObjectsInResults").is_some() {
                return found(call, "");
            }
            let gone = xml::any_reference("obj", (&from.0, &from.1));
            return refused("ManagedObjectNotFound", &gone);
        }
        let listed = match call.text("specSet/objectSet/selectSet/path") {
            "" => Vec::new(),
            _ if has_ended => Vec::new(),
            path => self.listed(&from, path),
        };
        let objects = [from].into_iter().chain(listed).filter_map(|of| {
            let (_, paths) = wanted.iter().find(|(kind, _)| *kind == of.0)?;
            Some(self.content(&of, paths, has_ended))
        });
        let objects: Vec<String> = objects.collect();
        self.page(call, objects)
    }

    /// The next page of a result.
    pub(super) fn next_page(&mut self, call: &Call) -> Reply {
        match self.rest.remove(call.text("token")) {
            Some(rest) => self.page(call, rest),
            None => refused("InvalidProperty", ""),
        }
    }

    fn page(&mut self, call: &Call, mut objects: Vec<String>) -> Reply {
        let rest = objects.split_off(self.page.min(objects.len()));
        let mut token = String::new();
        if !rest.is_empty() {
            let name = format!("token-{}", self.requests);
            token = xml::text("token", &name);
            self.rest.insert(name, rest);
        }
        let inside = if objects.is_empty() {
            String::new()
        } else {
            format!("<returnval>{token}{}</returnval>", objects.concat())
        };
        self.said = xml::response(&call.method, &inside);
        found(call, &inside)
    }

    fn exists(&self, (kind, id): &(String, String)) -> bool {
        match kind.as_str() {
            "VirtualMachine" => self.vms.iter().any(|vm| vm.id == *id),
            "Task" => self.tasks.iter().any(|task| task.id == *id),
            "TaskManager" => id == "tm-1",
            "VmwareDistributedVirtualSwitch" => id == "dvs-14",
            _ => self
                .inventory
                .values()
                .any(|known| known == &(kind.clone(), id.clone())),
        }
    }

    fn listed(&self, from: &(String, String), path: &str) -> Vec<(String, String)> {
        let of = |kind: &str, id: &str| (kind.to_owned(), id.to_owned());
        match (from.0.as_str(), path) {
            ("TaskManager", "recentTask") => self.tasks.iter().map(|task| of("Task", &task.id)).collect(),
            ("VirtualMachine", "network") => {
                let vm = self.vms.iter().find(|vm| vm.id == from.1).expect("a VM");
                let all = self
                    .networks
                    .iter()
                    .filter(|network| vm.networks.contains(&network.id));
                all.map(|network| of(network.kind, &network.id)).collect()
            }
            other => panic!("nobody lists {other:?}"),
        }
    }

    fn content(&self, of: &(String, String), paths: &[&str], has_ended: bool) -> String {
        let mut content = xml::reference("obj", (&of.0, &of.1));
        for path in paths {
            let property = if has_ended {
                Property::Missing("NotAuthenticated".to_owned())
            } else {
                self.property(of, path)
            };
            content.push_str(&match property {
                Property::Value(value) => format!("<propSet>{}{value}</propSet>", xml::text("name", path)),
                Property::Unset => continue,
                Property::Missing(fault) => missing(path, &fault),
            });
        }
        format!("<objects>{content}</objects>")
    }

    fn property(&self, (kind, id): &(String, String), path: &str) -> Property {
        let text = |text: &str| Property::Value(xml::value("xsd:string", text));
        match (kind.as_str(), path) {
            ("VirtualMachine", path) => {
                let vm = self.vms.iter().find(|vm| vm.id == *id).expect("a VM");
                of_vm(vm, path)
            }
            ("Task", "info") => {
                let task = self.tasks.iter().find(|task| task.id == *id).expect("a task");
                match &task.withheld {
                    Some(fault) => Property::Missing(fault.clone()),
                    None => Property::Value(format!(r#"<val xsi:type="TaskInfo">{}</val>"#, info(task))),
                }
            }
            ("TaskManager", "recentTask") => {
                let all = self
                    .tasks
                    .iter()
                    .map(|task| xml::any_reference("ManagedObjectReference", ("Task", &task.id)));
                let all: String = all.collect();
                Property::Value(xml::typed("val", "ArrayOfManagedObjectReference", &all))
            }
            ("ClusterComputeResource", "resourcePool") => {
                Property::Value(xml::any_reference("val", ("ResourcePool", "resgroup-8")))
            }
            ("DistributedVirtualPortgroup", "key") => text(id),
            ("DistributedVirtualPortgroup", "name") => {
                let network = self.networks.iter().find(|network| network.id == *id);
                text(&network.expect("a network").name)
            }
            ("DistributedVirtualPortgroup", "config.distributedVirtualSwitch") => Property::Value(
                xml::any_reference("val", ("VmwareDistributedVirtualSwitch", "dvs-14")),
            ),
            ("VmwareDistributedVirtualSwitch", "uuid") => text("50 2a"),
            (kind, path) => panic!("{kind} has no {path}"),
        }
    }
}

fn of_vm(vm: &Vm, path: &str) -> Property {
    if let Some(fault) = vm.withheld.get(path) {
        return match fault.as_str() {
            "" => Property::Unset,
            fault => Property::Missing(fault.to_owned()),
        };
    }
    if path.starts_with("config.") && !vm.is_configured {
        return Property::Unset;
    }
    let text = |text: &str| Property::Value(xml::value("xsd:string", text));
    let list = |kind: &str, all: &[String]| Property::Value(xml::typed("val", kind, &all.concat()));
    match path {
        "name" => text(&vm.name),
        "config.instanceUuid" => text(&vm.instance_uuid),
        "config.uuid" => text(&format!("bios-of-{}", vm.id)),
        "config.template" => text(if vm.is_template { "true" } else { "false" }),
        "config.createDate" => vm.created.as_deref().map_or(Property::Unset, text),
        "config.hardware.device" => list("ArrayOfVirtualDevice", &vm.devices),
        "config.extraConfig" => {
            let option = |(key, value): &(String, String)| {
                let value = xml::typed("value", "xsd:string", &xml::escaped(value));
                xml::typed("OptionValue", "OptionValue", &(xml::text("key", key) + &value))
            };
            let all: Vec<String> = vm.options.iter().map(option).collect();
            list("ArrayOfOptionValue", &all)
        }
        "runtime.powerState" => text(&vm.power),
        "runtime.question" => vm.question.as_ref().map_or(Property::Unset, |asked| {
            let asked = xml::text("id", "_vmx1") + &xml::text("text", asked);
            Property::Value(xml::typed("val", "VirtualMachineQuestionInfo", &asked))
        }),
        "guest.net" if vm.guest.is_empty() => Property::Unset,
        "guest.net" => list("ArrayOfGuestNicInfo", &vm.guest),
        other => panic!("a VM has no {other}"),
    }
}

fn info(task: &Task) -> String {
    let result = task
        .result
        .as_ref()
        .map(|vm| xml::any_reference("result", ("VirtualMachine", vm)));
    [
        xml::text("key", &task.id),
        xml::reference("task", ("Task", &task.id)),
        xml::text("name", "A_Task"),
        xml::text("descriptionId", &task.description),
        xml::reference("entity", ("VirtualMachine", &task.entity)),
        xml::text("entityName", "secret name"),
        xml::text("state", &task.state),
        task.error.clone().unwrap_or_default(),
        result.unwrap_or_default(),
        xml::text("activationId", &task.activation),
    ]
    .concat()
}

fn missing(path: &str, fault: &str) -> String {
    let inner = xml::typed(
        "fault",
        fault,
        &xml::any_reference("object", ("Folder", "group-d1")),
    );
    format!(
        "<missingSet>{}<fault>{inner}<localizedMessage/></fault></missingSet>",
        xml::text("path", path)
    )
}
