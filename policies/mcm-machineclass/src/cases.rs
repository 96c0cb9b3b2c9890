//! The table of cases, edge by edge: a `MachineClass`, the machines of its namespace, and what the policy does.
//!
//! The cases are data. The tests of this crate run them natively, those of the host as a component.
//! [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::prelude::*;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words {
    /// It has these finalizers.
    fn has(self, finalizers: &[&str]) -> Self;
    /// The pass leaves it these.
    fn gets(self, finalizers: &[&str]) -> Self;
    /// It is being deleted.
    fn deleted(self) -> Self;
}

impl Words for Case {
    fn has(self, finalizers: &[&str]) -> Self {
        self.edited(|class| class["metadata"]["finalizers"] = json!(finalizers))
    }

    fn gets(self, finalizers: &[&str]) -> Self {
        self.patch(json!({"metadata": {"finalizers": finalizers}}))
    }

    fn deleted(self) -> Self {
        self.edited(|class| class["metadata"]["deletionTimestamp"] = "2025-12-31T23:59:00Z".into())
    }
}

const OWN: &str = "mcm.polity.dev/machineclass";
const OTHER: &str = "example.com/other";

/// A class that no machine uses.
fn class() -> Case {
    let class = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "small", "namespace": "shoot", "uid": "uid-class"},
        "spec": {"providerSpec": {}, "secretRef": {"name": "user-data"}},
    });
    // A namespace has other machines, too.
    Case::new("MCM-", class)
        .manifest(crate::manifest())
        .exists(machine("other", "MachineClass", "large"))
}

/// A class that a machine uses.
fn used() -> Case {
    class().exists(machine("m", "MachineClass", "small"))
}

fn machine(name: &str, kind: &str, class: &str) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": name, "namespace": "shoot", "uid": format!("uid-{name}")},
        "spec": {"class": {"kind": kind, "name": class}},
    })
}

/// A machine of the class that is being deleted.
fn ending() -> Value {
    let mut machine = machine("m", "MachineClass", "small");
    machine["metadata"]["deletionTimestamp"] = "2025-12-31T23:59:00Z".into();
    machine["metadata"]["finalizers"] = json!(["mcm.polity.dev/machine"]);
    machine
}

/// A machine of a class of the same name in another namespace.
fn elsewhere() -> Value {
    let mut machine = machine("m", "MachineClass", "small");
    machine["metadata"]["namespace"] = "another".into();
    machine
}

polity_sdk::cases! { $ each_case of mcm_machineclass::cases;

mcm_k01_a_class_that_a_machine_uses_gets_the_finalizer:
    used().notes("K01").gets(&[OWN]);

mcm_k01_the_finalizers_of_others_stay:
    used().has(&[OTHER]).notes("K01").gets(&[OTHER, OWN]);

mcm_k02_a_class_that_has_it_is_left_alone:
    used().has(&[OWN])
        .step_by_step()
        .step(["list Machine namespace=shoot"])
        .notes("K02");

mcm_k02_a_machine_that_is_being_deleted_still_uses_its_class:
    class().has(&[OWN]).exists(ending()).notes("K02");

mcm_k03_a_class_that_is_deleted_while_it_is_used_stays:
    used().has(&[OWN]).deleted().notes("K03");

mcm_k03_also_while_its_last_machine_is_being_deleted:
    class().has(&[OWN]).exists(ending()).deleted().notes("K03");

mcm_k03_a_class_that_is_being_deleted_gets_no_finalizer:
    used().has(&[OTHER]).deleted().notes("K03");

mcm_k04_it_goes_once_the_last_machine_is_gone:
    class().has(&[OWN]).deleted().notes("K04").gets(&[]);

mcm_k04_the_finalizers_of_others_stay:
    class().has(&[OTHER, OWN]).deleted().notes("K04").gets(&[OTHER]);

mcm_k04_a_class_that_is_used_no_more_loses_the_finalizer_before_anybody_deletes_it:
    class().has(&[OWN]).notes("K04").gets(&[]);

mcm_k05_a_class_that_no_machine_uses_has_no_finalizer:
    class().notes("K05");

mcm_k05_a_class_of_another_kind_or_namespace_is_another_one:
    class()
        .exists(machine("n", "OpenStackMachineClass", "small"))
        .exists(elsewhere())
        .notes("K05");

mcm_k05_a_class_that_others_hold_is_theirs:
    class().has(&[OTHER]).deleted().notes("K05");

mcm_k05_machines_that_cannot_be_listed_change_nothing:
    used().has(&[OWN]).deleted()
        .fails("list Machine", Code::Unavailable)
        .fails_with(RetryClass::Short, Code::Unavailable, "no");
}
