//! Changes: each starts a task, which ends at once.

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::tree;

use super::{Call, Task, VCenter, Vm, found, own_vm, refused, xml};

impl VCenter {
    /// Performs a change.
    pub(super) fn change(&mut self, call: &Call) -> Reply {
        let Some(vm) = self.vms.iter_mut().find(|vm| vm.id == call.this) else {
            return refused("ManagedObjectNotFound", "");
        };
        let description = match call.method.as_str() {
            "CloneVM_Task" => return self.clone_vm(call),
            "ReconfigVM_Task" => {
                vm.set(&read_options(call, "spec/extraConfig"));
                "VirtualMachine.reconfigure"
            }
            "PowerOnVM_Task" => {
                vm.power = "poweredOn".to_owned();
                "VirtualMachine.powerOn"
            }
            "PowerOffVM_Task" => {
                vm.power = "poweredOff".to_owned();
                "VirtualMachine.powerOff"
            }
            "Destroy_Task" => {
                self.vms.retain(|vm| vm.id != call.this);
                "VirtualMachine.destroy"
            }
            other => panic!("nobody calls {other}"),
        };
        self.start(call, description, None)
    }

    fn clone_vm(&mut self, call: &Call) -> Reply {
        let at = call.text("folder");
        let folder = self.inventory.iter().find(|(_, (_, id))| id == at);
        let folder = folder.expect("a folder").0.clone();
        let name = call.text("name").to_owned();
        if self.vms.iter().any(|vm| vm.folder == folder && vm.name == name) {
            return refused("DuplicateName", &xml::text("name", &name));
        }
        let id = format!("vm-{}", 100 + self.vms.len());
        let mut vm = Vm {
            id: id.clone(),
            name,
            folder,
            instance_uuid: call.text("spec/config/instanceUuid").to_owned(),
            options: Vec::new(),
            ..own_vm()
        };
        vm.set(&read_options(call, "spec/config/extraConfig"));
        self.vms.push(vm);
        self.start(call, "VirtualMachine.clone", Some(id))
    }

    fn start(&mut self, call: &Call, description: &str, result: Option<String>) -> Reply {
        let id = format!("task-{}", 10 + self.tasks.len());
        self.tasks.push(Task {
            id: id.clone(),
            description: description.to_owned(),
            entity: call.this.clone(),
            state: "success".to_owned(),
            activation: call.operation_id.clone(),
            result,
            error: None,
            withheld: None,
        });
        found(call, &xml::reference("returnval", ("Task", &id)))
    }
}

impl Vm {
    /// Sets options. An empty value takes one away.
    fn set(&mut self, options: &[(String, String)]) {
        for (key, value) in options {
            self.options.retain(|(known, _)| known != key);
            if !value.is_empty() {
                self.options.push((key.clone(), value.clone()));
            }
        }
    }
}

fn read_options(call: &Call, path: &str) -> Vec<(String, String)> {
    let all = tree::all(&call.element, path).into_iter().map(|option| {
        assert_eq!(option["@type"], "OptionValue");
        let text = |name: &str| tree::text(option, name).to_owned();
        (text("key"), text("value"))
    });
    all.collect()
}
