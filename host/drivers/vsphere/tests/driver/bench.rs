//! The driver in front of the vCenter. Its answers are checked against the catalogue.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

use polity_clouds::catalogue::{Named, task, vm};
use polity_driver_sdk::HttpRequest;
use polity_driver_sdk::prelude::*;
use polity_driver_sdk::test::{Play, Reply};
use polity_driver_vsphere::VSphere;
use polity_kube_rules::schema::{Dialect, compile};

use crate::vcenter::VCenter;

type Server = Box<dyn FnMut(&HttpRequest) -> Reply>;

/// The driver in front of a vCenter.
pub(crate) struct Bench {
    vcenter: Rc<RefCell<VCenter>>,
    pub(crate) play: Play<Server>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let vcenter = Rc::new(RefCell::new(VCenter::new()));
        let server = Rc::clone(&vcenter);
        let mut play: Play<Server> = Play::new(Box::new(move |request| server.borrow_mut().answer(request)));
        play.config = json!({"datacenter": "DC0", "resourcePool": "C0/Resources/team-a"});
        Bench { vcenter, play }
    }

    /// The server, to change it.
    pub(crate) fn vcenter(&self) -> RefMut<'_, VCenter> {
        self.vcenter.borrow_mut()
    }

    /// Performs an operation. Its arguments and its answer must match the catalogue.
    pub(crate) fn call(&mut self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        let (_, known) = catalogue()
            .into_iter()
            .find(|(name, _)| *name == operation)
            .expect("an operation");
        check(&known.arguments, &arguments);
        self.vcenter().requests = 0;
        self.play.sent.clear();
        let answer = self.play.perform::<VSphere>(operation, arguments)?;
        check(&known.answer, &answer);
        Ok(answer)
    }

    /// Performs an operation that fails.
    pub(crate) fn code(&mut self, operation: &str, arguments: Value) -> Code {
        self.call(operation, arguments).expect_err(operation).code
    }

    /// Resolves the clone of `m-1`.
    pub(crate) fn resolve(&mut self, change: impl FnOnce(&mut Entry)) -> Finding {
        let mut entry = self.play.entry("m-1");
        entry.place = vec!["DC0".to_owned(), "team-a".to_owned()];
        change(&mut entry);
        self.vcenter().requests = 0;
        self.play.sent.clear();
        let finding = self.play.resolve::<VSphere>("vm.clone", entry);
        if let Finding::Found(answer) = &finding {
            let (_, known) = catalogue()
                .into_iter()
                .find(|(name, _)| *name == "vm.clone")
                .expect("an operation");
            check(&known.answer, &serde_json::from_str(answer).expect("JSON"));
        }
        finding
    }

    /// The body of the one change that was sent.
    pub(crate) fn changed(&self) -> String {
        let changes: Vec<&HttpRequest> = self.play.changes().collect();
        assert_eq!(changes.len(), 1);
        self.play.body(changes[0])
    }

    /// How many changes were sent.
    pub(crate) fn changes(&self) -> usize {
        self.play.changes().count()
    }
}

/// The operations of both services.
pub(crate) fn catalogue() -> Vec<Named> {
    vm::operations(Duration::ZERO)
        .into_iter()
        .chain(task::operations())
        .collect()
}

fn check(schema: &Value, value: &Value) {
    let schema = compile(Dialect::Json, "", schema).expect("a schema");
    assert_eq!(schema.check(value), Ok(()), "{value}");
}

/// The arguments of a clone.
pub(crate) fn clone_arguments() -> Value {
    json!({
        "name": "m-2", "instanceUuid": "uuid-2", "template": "ubuntu", "folder": "team-a",
        "cpus": 4, "coresPerSocket": 2, "memoryMiB": 2048, "networks": [],
    })
}

/// The arguments that name the VM of the owner.
pub(crate) fn own() -> Value {
    json!({"id": crate::vcenter::OWN_VM})
}

/// An operation that names a VM, with arguments.
pub(crate) fn by_id() -> Vec<(&'static str, Value)> {
    let all = [
        "vm.get",
        "vm.metadata",
        "vm.nics",
        "vm.power",
        "vm.power-on",
        "vm.power-off",
        "vm.destroy",
    ];
    let mut all: Vec<(&str, Value)> = all.map(|name| (name, own())).into();
    all.push((
        "vm.reconfigure",
        json!({"id": crate::vcenter::OWN_VM, "metadata": "m"}),
    ));
    all
}
