//! Tests of clones whose answer was lost.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::test::Reply;

use crate::bench::Bench;
use crate::vcenter::{OWN_VM, Task, clone_task, options};

/// A bench without the owner's VM.
fn bare() -> Bench {
    let bench = Bench::new();
    bench.vcenter().vms.retain(|vm| vm.id != OWN_VM);
    bench
}

/// A bench whose VM has no marks, and was created at this time. It is 2026-09-21T14:13:20Z.
fn unmarked(created: Option<&str>) -> Bench {
    let bench = Bench::new();
    let mut vcenter = bench.vcenter();
    let vm = vcenter.vm(OWN_VM);
    vm.options.clear();
    vm.instance_uuid = "of another".to_owned();
    vm.created = created.map(str::to_owned);
    drop(vcenter);
    bench
}

fn found(task: &str) -> Finding {
    Finding::Found(json!({"task": task}).to_string())
}

fn cannot_tell(finding: Finding) -> Failure {
    match finding {
        Finding::CannotTell(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn task(state: &str, change: impl FnOnce(&mut Task)) -> Task {
    let mut task = clone_task(state);
    change(&mut task);
    task
}

#[test]
fn a_clone_that_left_no_trace_is_none() {
    let mut bench = bare();
    assert_eq!(bench.resolve(|_| ()), Finding::None);
    bench
        .vcenter()
        .tasks
        .push(task("running", |task| task.activation = "another".to_owned()));
    bench
        .vcenter()
        .tasks
        .push(task("running", |task| task.activation.clear()));
    assert_eq!(bench.resolve(|_| ()), Finding::None);
}

#[test]
fn a_task_with_the_key_is_found_whatever_its_state() {
    for state in ["queued", "running", "success", "error"] {
        let mut bench = bare();
        bench
            .vcenter()
            .tasks
            .push(task("running", |task| task.id = "task-6".to_owned() + "x"));
        bench.vcenter().tasks[0].activation = "another".to_owned();
        bench.vcenter().tasks.push(clone_task(state));
        assert_eq!(bench.resolve(|_| ()), found("task-7"), "{state}");
    }
}

#[test]
fn a_task_under_way_is_found_although_its_vm_stands_there() {
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).options.clear();
    bench.vcenter().tasks.push(clone_task("running"));
    assert_eq!(bench.resolve(|_| ()), found("task-7"));
    bench.vcenter().vm(OWN_VM).is_configured = false;
    assert_eq!(
        bench.resolve(|_| ()),
        found("task-7"),
        "its configuration cannot be read yet"
    );
}

#[test]
fn a_clone_whose_task_is_gone_is_found_by_its_vm_and_the_policy_can_go_on() {
    let mut bench = Bench::new();
    assert_eq!(bench.resolve(|_| ()), found("cloned:vm-42"));
    let told = bench.call("task.get", json!({"id": "cloned:vm-42"})).unwrap();
    assert_eq!((&told["state"], &told["vm"]), (&json!("success"), &json!(OWN_VM)));
}

#[test]
fn a_vm_that_was_moved_and_renamed_is_found_by_its_uuid() {
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).name = "other".to_owned();
    bench.vcenter().vm(OWN_VM).folder = "DC0/vm".to_owned();
    assert_eq!(bench.resolve(|_| ()), found("cloned:vm-42"));
    bench.vcenter().inventory.remove("DC0/vm/team-a");
    assert_eq!(
        bench.resolve(|_| ()),
        found("cloned:vm-42"),
        "the folder is gone too"
    );
}

#[test]
fn a_vm_whose_uuid_vcenter_has_replaced_is_found_by_its_name() {
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).instance_uuid = "52 5a".to_owned();
    assert_eq!(bench.resolve(|_| ()), found("cloned:vm-42"));
}

#[test]
fn the_vm_of_another_clone_is_none() {
    for marks in [
        [
            ("polity.owner", "owner-1"),
            ("polity.tenant", "tenant-1"),
            ("polity.key", "key-0"),
        ],
        [
            ("polity.owner", "owner-2"),
            ("polity.tenant", "tenant-2"),
            ("polity.key", "key-2"),
        ],
        [
            ("polity.owner", "owner-2"),
            ("polity.tenant", "tenant-2"),
            ("polity.key", ""),
        ],
    ] {
        let mut bench = Bench::new();
        bench.vcenter().vm(OWN_VM).options = options(&marks);
        assert_eq!(bench.resolve(|_| ()), Finding::None, "{marks:?}");
    }
}

#[test]
fn a_vm_with_the_key_that_is_anothers_cannot_be_told() {
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).options = options(&[("polity.owner", "owner-2"), ("polity.key", "key-1")]);
    assert_eq!(cannot_tell(bench.resolve(|_| ())).code, Code::FailedPrecondition);
}

#[test]
fn a_vm_without_marks_is_none_only_if_it_is_older_than_the_entry() {
    // The entry was written at 14:12:20; clocks may differ by five minutes.
    for (created, is_none) in [
        (Some("2026-09-21T14:07:19Z"), true),
        (Some("2026-09-21T16:07:19+02:00"), true),
        (Some("2026-09-21T14:07:21Z"), false),
        (Some("2026-09-21T14:13:00Z"), false),
        (Some("2026-09-21T15:00:00Z"), false),
        (Some("yesterday"), false),
        (None, false),
    ] {
        match unmarked(created).resolve(|_| ()) {
            Finding::None => assert!(is_none, "{created:?}"),
            Finding::CannotTell(_) => assert!(!is_none, "{created:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_vm_without_marks_is_none_once_no_clone_takes_as_long() {
    let of_old = |entry: &mut Entry| entry.since -= 10 * 3_600_000;
    let mut bench = unmarked(Some("2026-09-21T12:00:00Z"));
    assert_eq!(bench.resolve(of_old), Finding::None);
    bench
        .vcenter()
        .tasks
        .push(task("running", |task| task.activation = "unknown".to_owned()));
    cannot_tell(bench.resolve(of_old));
    bench.vcenter().tasks[0].state = "success".to_owned();
    assert_eq!(bench.resolve(of_old), Finding::None);
    let mut younger = unmarked(Some("2026-09-21T12:15:00Z"));
    cannot_tell(younger.resolve(of_old));
}

#[test]
fn a_vcenter_that_does_not_say_when_a_vm_was_created_is_not_asked() {
    let mut bench = unmarked(Some("2026-01-01T00:00:00Z"));
    bench.vcenter().api_version = "6.5".to_owned();
    cannot_tell(bench.resolve(|_| ()));
    let sent: String = bench
        .play
        .sent
        .iter()
        .map(|request| bench.play.body(request))
        .collect();
    assert!(!sent.contains("createDate"));
    let mut bench = unmarked(Some("2026-01-01T00:00:00Z"));
    bench.resolve(|_| ());
    let action = |request: &polity_driver_sdk::HttpRequest| request.headers[0].1.clone();
    let actions: Vec<String> = bench.play.sent.iter().map(action).collect();
    assert_eq!(actions.last().unwrap(), "urn:vim25/6.7");
    assert!(
        actions[..actions.len() - 1]
            .iter()
            .all(|action| action == "urn:vim25/6.5")
    );
}

#[test]
fn a_vm_that_is_being_made_cannot_be_told() {
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).is_configured = false;
    assert_eq!(cannot_tell(bench.resolve(|_| ())).code, Code::Unavailable);
}

#[test]
fn without_its_folder_nothing_is_told() {
    let mut bench = bare();
    bench.vcenter().inventory.remove("DC0/vm/team-a");
    assert_eq!(cannot_tell(bench.resolve(|_| ())).code, Code::FailedPrecondition);
}

#[test]
fn a_look_that_failed_is_not_complete() {
    for method in [
        "RetrieveServiceContent",
        "FindByInventoryPath",
        "FindAllByUuid",
        "RetrievePropertiesEx",
    ] {
        for reply in [
            Reply::new(503, "busy"),
            Reply::lost(failure(Code::Unavailable, "no route")),
        ] {
            let mut bench = bare();
            bench.vcenter().instead.insert(method.to_owned(), reply);
            assert_eq!(
                cannot_tell(bench.resolve(|_| ())).code,
                Code::Unavailable,
                "{method}"
            );
        }
    }
}

#[test]
fn a_list_of_tasks_that_cannot_be_read_is_not_an_empty_one() {
    let empty = crate::vcenter::xml::response("RetrievePropertiesEx", "");
    let mut bench = bare();
    bench
        .vcenter()
        .instead
        .insert("RetrievePropertiesEx".to_owned(), Reply::new(200, empty));
    assert_eq!(cannot_tell(bench.resolve(|_| ())).code, Code::Unavailable);
}

#[test]
fn tasks_of_others_and_tasks_that_have_gone_are_passed_over() {
    for (fault, is_none) in [
        ("NoPermission", true),
        ("ManagedObjectNotFound", true),
        ("SystemError", false),
    ] {
        let mut bench = bare();
        bench
            .vcenter()
            .tasks
            .push(task("running", |task| task.withheld = Some(fault.to_owned())));
        assert_eq!(bench.resolve(|_| ()) == Finding::None, is_none, "{fault}");
    }
}

#[test]
fn tasks_in_pages_are_all_read() {
    let mut bench = bare();
    bench.vcenter().page = 2;
    for nth in 0..5 {
        bench.vcenter().tasks.push(task("success", |task| {
            task.id = format!("task-{}", 20 + nth);
            task.activation = format!("other-{nth}");
        }));
    }
    bench.vcenter().tasks.push(clone_task("running"));
    assert_eq!(bench.resolve(|_| ()), found("task-7"));
}

#[test]
fn a_place_without_names_is_that_of_the_configuration() {
    let mut bench = Bench::new();
    bench.play.config["folder"] = json!("team-a");
    bench.vcenter().vm(OWN_VM).instance_uuid = "other".to_owned();
    for place in [
        vec![],
        vec![String::new(), String::new()],
        vec!["server".to_owned(), String::new(), String::new()],
    ] {
        assert_eq!(bench.resolve(|entry| entry.place = place), found("cloned:vm-42"));
    }
    let elsewhere = vec!["DC0".to_owned(), "/DC0/vm".to_owned()];
    assert_eq!(bench.resolve(|entry| entry.place = elsewhere), Finding::None);
}

#[test]
fn an_entry_without_a_key_is_not_compared_with_tasks_without_one() {
    let mut bench = bare();
    bench
        .vcenter()
        .tasks
        .push(task("running", |task| task.activation.clear()));
    assert_eq!(
        cannot_tell(bench.resolve(|entry| entry.key.clear())).code,
        Code::Internal
    );
}
