//! The scenarios of the specification, (g) 1 to 15: passes one after the other against a small vCenter.

#[allow(unreachable_pub, reason = "a module of this test alone")]
mod vcenter;

use std::time::Duration;

use polity_sdk::test::{Ended, World};
use polity_sdk::{ActInDoubt, Code, Next, RECONCILE_FAILED, RECONCILED, Resolution, RetryClass};
use serde_json::{Value, json};
use vcenter::VCenter;

/// A machine and its vCenter.
struct Story {
    world: World,
    vcenter: VCenter,
}

impl Story {
    fn new() -> Self {
        Story::with(json!({}))
    }

    fn with(config: Value) -> Self {
        let vcenter = VCenter::default();
        vcenter.state().ips = vec!["10.0.0.1"];
        let mut world = World::new(json!({
            "apiVersion": "capv.polity.dev/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": "m-1", "namespace": "team", "uid": "uid-1"},
            "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "prod", "dhcp4": true}]}},
        }))
        .config(config)
        .manifest(&capv_machine::manifest());
        let cloud = vcenter.clone();
        world.responds(move |request| cloud.answer(request));
        Story { world, vcenter }
    }

    /// The object without the condition that tells of its passes, and that condition.
    fn without_report(&self) -> (Option<Value>, Value) {
        let mut object = self.world.object().cloned();
        let conditions = object
            .as_mut()
            .and_then(|object| object["status"]["conditions"].as_array_mut());
        let told = conditions.and_then(Vec::pop).expect("a condition");
        assert_eq!(told["type"], RECONCILED);
        (object, told)
    }

    /// A machine that is running with addresses.
    fn running() -> Self {
        let mut story = Story::new();
        story.settle();
        assert_eq!(story.world.status()["phase"], "Running");
        story
    }

    /// One pass, and the time that it asks for.
    fn pass(&mut self) -> Ended {
        let ended = self.world.pass(capv_machine::reconcile);
        self.world.wait(&ended.next, Duration::from_secs(1));
        self.vcenter.state().tick();
        ended
    }

    /// One pass; the edges it took: `"03 11"`.
    fn edges(&mut self) -> String {
        edges(&self.pass())
    }

    /// Passes until one settles; the edges of each.
    fn settle(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..50 {
            let ended = self.pass();
            all.push(edges(&ended));
            if matches!(ended.next, Next::Settled(_)) {
                return all;
            }
        }
        panic!("50 passes and not settled: {all:#?}");
    }

    /// A clone is in doubt in the next pass.
    fn doubt(&mut self, resolution: Resolution) {
        let (operation, intent) = ("vm.clone".into(), "m-1".into());
        let since = self.world.now().unix_ms();
        self.world.set_pending(vec![ActInDoubt {
            operation,
            intent,
            since,
            resolution,
        }]);
    }
}

fn edges(ended: &Ended) -> String {
    ended
        .notes
        .iter()
        .map(|id| id.trim_start_matches("CAPV-"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn scenario_01_create_to_ready() {
    let mut story = Story::new();
    story.vcenter.state().ips = vec![];
    let expected = [
        "03 11 12 14 18 22 23",
        "02 04 05",
        "02 04 06 11 39 17 22 24 25",
        "02 04 05",
        "02 04 06 11 15 17 22 24 26 27",
        "02 04 05",
        "02 04 06 11 15 17 22 24 26 28 30",
    ];
    for edges in expected {
        assert_eq!(story.edges(), edges);
    }
    assert_eq!(story.world.status()["phase"], "WaitingForAddresses");
    story.vcenter.state().ips = vec!["169.254.0.9", "10.0.0.1"];
    let ended = story.pass();
    assert_eq!(edges(&ended), "03 11 15 17 22 24 26 28 29");
    assert_eq!(ended.next, Next::Settled(Some(600_000)));
    assert_eq!(
        story.vcenter.state().changes,
        ["vm.clone", "vm.reconfigure", "vm.power-on"]
    );
    assert_eq!(story.world.status()["addresses"], json!(["10.0.0.1"]));
    assert_eq!(story.world.status()["conditions"][0]["status"], "True");
}

#[test]
fn scenario_02_a_crash_between_clone_and_patch_makes_no_second_vm() {
    for forgetful in [false, true] {
        let mut story = Story::new();
        story.vcenter.state().lose_answer = true;
        story.vcenter.state().forgetful = forgetful;
        let ended = story.pass();
        assert!(matches!(ended.next, Next::Retry(_)));
        assert_eq!(story.world.status()["taskRef"], Value::Null);
        story.vcenter.state().tick();
        let done = story.vcenter.settle_clone();
        story.doubt(Resolution::Done(done.to_string()));
        let first = if forgetful {
            "37 03 11 15 17 22 24 25"
        } else {
            "37 02 04 06 11 39 17 22 24 25"
        };
        assert_eq!(story.edges(), first);
        story.settle();
        assert_eq!((story.vcenter.clones(), story.vcenter.state().vms.len()), (1, 1));
    }
}

#[test]
fn scenario_03_a_crash_while_the_clone_runs_ends_with_one_vm() {
    let mut story = Story::new();
    story.vcenter.state().lose_answer = true;
    story.pass();
    story.doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()));
    assert_eq!(story.edges(), "36");
    let done = story.vcenter.settle_clone();
    story.doubt(Resolution::Done(done.to_string()));
    story.settle();
    assert_eq!((story.vcenter.clones(), story.vcenter.state().vms.len()), (1, 1));
}

#[test]
fn scenario_03_a_second_clone_fails_on_the_name_and_the_first_is_adopted() {
    let mut story = Story::new();
    story.vcenter.state().lose_answer = true;
    story.pass();
    // As if the pending entry had been lost as well.
    assert_eq!(story.edges(), "03 11 12 14 18 22 23");
    let all = story.settle();
    assert_eq!(all[0], "02 04 05");
    assert_eq!(all[1], "02 04 07 11 12 13 17 22 24");
    assert_eq!((story.vcenter.clones(), story.vcenter.state().vms.len()), (2, 1));
}

#[test]
fn scenario_04_an_expired_task_record_requeues_and_the_next_pass_goes_on() {
    let mut story = Story::new();
    story.vcenter.state().forgetful = true;
    story.pass();
    story.edges();
    let ended = story.pass();
    assert_eq!(
        (edges(&ended).as_str(), &ended.next),
        ("02 08", &Next::After(20_000))
    );
    assert!(ended.acts().is_empty());
    assert_eq!(story.edges(), "03 11 12 13 17 22 24 25");
}

#[test]
fn scenario_05_a_clone_that_always_fails_is_tried_once_a_minute() {
    let mut story = Story::new();
    story.vcenter.state().clones_fail = Some("FileNotFound");
    let mut cloned_at = Vec::new();
    for _ in 0..20 {
        let now = story.world.now();
        let ended = story.world.pass(capv_machine::reconcile);
        if !ended.acts().is_empty() {
            cloned_at.push(now);
        }
        story.world.wait(&ended.next, Duration::ZERO);
        story.vcenter.state().tick();
        if story.world.status()["retryAfter"].is_string() {
            assert_eq!(story.world.status()["phase"], "BackingOff");
            assert_eq!(
                story.world.status()["conditions"][0]["message"],
                "FileNotFound: no"
            );
        }
    }
    assert!(cloned_at.len() >= 5);
    for pair in cloned_at.windows(2) {
        assert!(pair[1].since(pair[0]) >= Duration::from_secs(60), "{pair:?}");
    }
}

#[test]
fn scenario_05_without_backoff_a_clone_that_always_fails_is_tried_in_every_pass() {
    let mut story = Story::with(json!({"failureBackoff": "0"}));
    story.vcenter.state().clones_fail = Some("FileNotFound");
    story.pass();
    for _ in 0..5 {
        assert_eq!(story.edges(), "02 04 05");
        assert_eq!(story.edges(), "02 04 07 11 12 14 18 22 23");
    }
    assert_eq!(story.vcenter.clones(), 6);
}

#[test]
fn scenario_06_an_unreachable_vcenter_fails_the_pass_is_told_and_clears_nothing() {
    let mut story = Story::running();
    let before = story.world.object().cloned();
    story.vcenter.state().unreachable = true;
    let ended = story.pass();
    let Next::Retry(retry) = &ended.next else {
        panic!("not a retry: {}", ended.next)
    };
    assert_eq!(retry.class, RetryClass::Short);
    assert_eq!(
        retry.failure.as_ref().map(|failure| failure.code),
        Some(Code::Unavailable)
    );
    let events: Vec<&str> = ended.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(events, [RECONCILE_FAILED]);
    let (after, told) = story.without_report();
    assert_eq!(told["status"], "False");
    assert_eq!(after, before);

    let again = story.pass();
    assert_eq!((again.patch, again.events), (None, Vec::new()), "said once");
    story.vcenter.state().unreachable = false;
    story.settle();
    assert_eq!(story.without_report().1["status"], "True");
}

#[test]
fn scenario_07_a_vm_removed_by_hand_is_made_anew_in_the_same_pass() {
    let mut story = Story::running();
    story.vcenter.state().vms.clear();
    assert_eq!(story.edges(), "03 11 15 16 22 23");
    story.settle();
    assert_eq!(story.world.status()["phase"], "Running");
    assert_eq!(story.vcenter.clones(), 2);
}

#[test]
fn scenario_07_a_vm_removed_by_hand_stays_missing_where_the_binding_says_so() {
    let mut story = Story::with(json!({"recreateMissing": false}));
    story.settle();
    let vms = std::mem::take(&mut story.vcenter.state().vms);
    assert_eq!(story.settle(), ["03 11 15 16 22"]);
    assert_eq!(story.world.status()["conditions"][0]["reason"], "NotFound");
    assert_eq!(story.settle(), ["03 11 12 14 18 22"]);
    assert_eq!(story.vcenter.clones(), 1);
    // It was only out of sight.
    story.vcenter.state().vms = vms;
    assert_eq!(story.settle(), ["03 11 12 13 17 22 24 26 28 29"]);
    assert_eq!(story.world.status()["phase"], "Running");
}

#[test]
fn scenario_08_deleting_a_running_vm_stops_it_destroys_it_and_lets_go() {
    let mut story = Story::running();
    story.world.delete();
    assert_eq!(
        story.settle(),
        [
            "03 11 15 17 19 20a",
            "02 04 05",
            "02 04 06 11 15 17 19 20b",
            "02 04 05",
            "02 04 06 11 15 16 19 21",
        ]
    );
    assert!(story.world.object().is_none());
    assert!(story.vcenter.state().vms.is_empty());
}

#[test]
fn scenario_09_deleting_while_the_clone_runs_leaks_no_vm() {
    let mut story = Story::new();
    story.pass();
    story.world.delete();
    let all = story.settle();
    assert_eq!(all[..2], ["02 04 05", "02 04 06 11 39 17 19 20b"]);
    assert!(story.world.object().is_none());
    assert!(story.vcenter.state().vms.is_empty());
    assert_eq!(story.vcenter.state().changes, ["vm.clone", "vm.destroy"]);
}

#[test]
fn scenario_10_a_machine_that_never_had_a_vm_is_let_go_in_one_pass() {
    let mut story = Story::new();
    story
        .world
        .edit(json!({"metadata": {"finalizers": ["capv.polity.dev/machine"]}}));
    story.world.delete();
    assert_eq!(story.settle(), ["03 11 12 14 18 19 21"]);
    assert!(story.world.object().is_none());
}

#[test]
fn scenario_11_metadata_drift_is_put_right_without_a_power_cycle() {
    let mut story = Story::running();
    story.world.edit(json!({"spec": {"network": {"devices": [
        {"networkName": "prod", "dhcp4": false, "ipAddrs": ["10.0.0.1/24"], "gateway4": "10.0.0.254"},
    ]}}}));
    assert_eq!(
        story.settle(),
        [
            "03 11 15 17 22 24 25",
            "02 04 05",
            "02 04 06 11 15 17 22 24 26 28 29"
        ]
    );
    assert_eq!(story.vcenter.state().changes[3..], ["vm.reconfigure"]);
}

#[test]
fn scenario_12_a_vm_powered_off_by_an_operator_is_started_again() {
    let mut story = Story::running();
    story
        .vcenter
        .state()
        .vms
        .values_mut()
        .for_each(|vm| vm.power = "off".into());
    assert_eq!(
        story.settle(),
        [
            "03 11 15 17 22 24 26 27",
            "02 04 05",
            "02 04 06 11 15 17 22 24 26 28 29"
        ]
    );
}

#[test]
fn scenario_13_a_vm_that_is_on_already_counts_as_started() {
    let mut story = Story::running();
    story
        .vcenter
        .state()
        .vms
        .values_mut()
        .for_each(|vm| vm.power = "off".into());
    assert_eq!(story.edges(), "03 11 15 17 22 24 26 27");
    // An operator is faster.
    story
        .vcenter
        .state()
        .vms
        .values_mut()
        .for_each(|vm| vm.power = "on".into());
    assert_eq!(story.settle(), ["02 04 05", "02 04 06 11 15 17 22 24 26 28 29"]);
}

#[test]
fn scenario_14_an_unknown_task_state_fails_and_clears_nothing() {
    let mut story = Story::new();
    story.pass();
    let before = story.world.object().cloned();
    story.vcenter.state().odd_state = Some("paused");
    let ended = story.pass();
    assert_eq!(edges(&ended), "02 04 09");
    assert!(matches!(ended.next, Next::Retry(_)));
    assert_eq!(story.without_report().0, before);
}

/// A stale read is for the host to detect. What the policy owes it: from the same object the same act with the same
/// intent, so that it can be recognised.
#[test]
fn scenario_15_the_same_object_asks_for_the_same_clone() {
    let mut story = Story::new();
    let stale = story.world.object().cloned().unwrap();
    let first = story.pass();
    let mut again = World::new(stale).manifest(&capv_machine::manifest());
    let cloud = story.vcenter.clone();
    again.responds(move |request| cloud.answer(request));
    let second = again.pass(capv_machine::reconcile);
    assert_eq!(first.steps, second.steps);
}

#[test]
fn every_note_is_an_edge_of_the_manifest_and_every_edge_has_an_id_of_its_own() {
    let manifest = capv_machine::manifest();
    let edges = &manifest.as_contract().edges;
    let mut ids: Vec<&str> = edges.iter().map(|edge| edge.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), edges.len());
    for n in 1..=38 {
        assert!(ids.contains(&format!("CAPV-{n:02}").as_str()), "CAPV-{n:02}");
    }
    for edge in edges {
        for from in edge.derived_from.iter().flat_map(|from| from.split(' ')) {
            let known = ["started", "published", "requeued", "failed", "succeeded"].contains(&from);
            assert!(known || ids.contains(&from), "{} is derived from {from}", edge.id);
        }
    }
}
