//! Tasks.

use polity_driver_sdk::prelude::*;

use crate::bench::Bench;
use crate::vcenter::{OWN_VM, clone_task, options};

fn get() -> Value {
    json!({"id": "task-7"})
}

fn with(state: &str, change: impl FnOnce(&mut crate::vcenter::Task)) -> Bench {
    let bench = Bench::new();
    let mut task = clone_task(state);
    change(&mut task);
    bench.vcenter().tasks.push(task);
    bench
}

#[test]
fn a_clone_has_no_vm_until_it_has_succeeded() {
    for state in ["queued", "running"] {
        let told = with(state, |_| ()).call("task.get", get()).unwrap();
        assert_eq!(told, json!({"id": "task-7", "state": state, "kind": "clone"}));
    }
    let told = with("success", |_| ()).call("task.get", get()).unwrap();
    assert_eq!(
        told,
        json!({"id": "task-7", "state": "success", "kind": "clone", "vm": OWN_VM})
    );
}

#[test]
fn a_task_that_waits_for_a_person_tells_the_question_of_its_vm() {
    let asked = "msg.uuid.altered: This virtual machine may have been moved or copied.";
    let start = |task: &mut crate::vcenter::Task| {
        task.description = "VirtualMachine.powerOn".to_owned();
        task.entity = OWN_VM.to_owned();
    };
    for (state, told) in [("running", Some(asked)), ("success", None)] {
        let mut bench = with(state, start);
        bench.vcenter().vm(OWN_VM).question = Some(asked.to_owned());
        let answer = bench.call("task.get", get()).unwrap();
        assert_eq!(answer.get("question").and_then(Value::as_str), told);
    }
    let mut hidden = with("running", start);
    hidden.vcenter().vm(OWN_VM).withheld =
        [("runtime.question".to_owned(), "NoPermission".to_owned())].into();
    assert_eq!(hidden.call("task.get", get()).unwrap().get("question"), None);
}

#[test]
fn a_record_that_is_gone_is_not_found() {
    let mut bench = Bench::new();
    for id in ["task-7", "task 7", "", "vm-42<"] {
        if !id.is_empty() {
            assert_eq!(bench.code("task.get", json!({"id": id})), Code::NotFound, "{id}");
        }
    }
}

#[test]
fn an_error_says_which_power_state_there_is_and_which_was_asked_for() {
    let error = r#"<error><fault xsi:type="InvalidPowerState"><requestedState>poweredOn</requestedState><existingState>poweredOn</existingState></fault><localizedMessage>The attempted operation
cannot be performed</localizedMessage></error>"#;
    let mut bench = with("error", |task| {
        task.description = "VirtualMachine.powerOn".to_owned();
        task.entity = OWN_VM.to_owned();
        task.error = Some(error.to_owned());
    });
    assert_eq!(
        bench.call("task.get", get()).unwrap(),
        json!({
            "id": "task-7", "state": "error", "kind": "power-on", "vm": OWN_VM,
            "error": {
                "fault": "InvalidPowerState", "message": "The attempted operation cannot be performed",
                "existing": "on", "requested": "on",
            },
        })
    );
}

#[test]
fn an_error_of_another_kind_has_its_name_and_message() {
    let error = r#"<error><fault xsi:type="vim25:DuplicateName"><name>m &amp; &lt;1&gt;</name></fault><localizedMessage>m &amp; &lt;1&gt; exists</localizedMessage></error>"#;
    let mut bench = with("error", |task| task.error = Some(error.to_owned()));
    assert_eq!(
        bench.call("task.get", get()).unwrap(),
        json!({
            "id": "task-7", "state": "error", "kind": "clone",
            "error": {"fault": "DuplicateName", "message": "m & <1> exists"},
        })
    );
    let mut bench = with("error", |_| ());
    let told = bench.call("task.get", get()).unwrap();
    assert_eq!(told.get("error"), None, "a server that says no reason");
}

#[test]
fn a_task_about_the_vm_of_another_is_refused() {
    let mut of_clone = with("success", |_| ());
    let mut of_change = with("running", |task| {
        task.description = "VirtualMachine.powerOff".to_owned();
        task.entity = OWN_VM.to_owned();
    });
    for bench in [&mut of_clone, &mut of_change] {
        bench.vcenter().vm(OWN_VM).options = options(&[("polity.owner", "owner-2")]);
        assert_eq!(bench.code("task.get", get()), Code::PermissionDenied);
    }
}

#[test]
fn the_task_that_removed_a_vm_outlives_it() {
    let mut bench = with("success", |task| {
        task.description = "VirtualMachine.destroy".to_owned();
        task.entity = "vm-77".to_owned();
    });
    let told = bench.call("task.get", get()).unwrap();
    assert_eq!((&told["kind"], &told["vm"]), (&json!("destroy"), &json!("vm-77")));
}

#[test]
fn a_task_that_cannot_be_understood_is_not_forgotten() {
    let mut moved = with("running", |task| {
        task.description = "VirtualMachine.migrate".to_owned()
    });
    assert_eq!(moved.code("task.get", get()), Code::Internal);
    let mut lost = with("lost", |_| ());
    assert_eq!(lost.code("task.get", get()), Code::Internal);
    let mut withheld = with("running", |task| task.withheld = Some("NoPermission".to_owned()));
    assert_eq!(withheld.code("task.get", get()), Code::PermissionDenied);
}

#[test]
fn the_stand_in_for_a_clone_answers_for_its_vm() {
    let id = json!({"id": "cloned:vm-42"});
    let mut bench = Bench::new();
    assert_eq!(
        bench.call("task.get", id.clone()).unwrap(),
        json!({"id": "cloned:vm-42", "state": "success", "kind": "clone", "vm": OWN_VM})
    );
    bench.vcenter().vm(OWN_VM).is_configured = false;
    assert_eq!(bench.code("task.get", id.clone()), Code::Unavailable);
    bench.vcenter().vm(OWN_VM).is_configured = true;
    bench.vcenter().vm(OWN_VM).options = options(&[("polity.owner", "owner-2")]);
    assert_eq!(bench.code("task.get", id.clone()), Code::PermissionDenied);
    bench.vcenter().vms.clear();
    assert_eq!(bench.code("task.get", id), Code::NotFound);
    assert_eq!(bench.code("task.get", json!({"id": "cloned:"})), Code::NotFound);
}
