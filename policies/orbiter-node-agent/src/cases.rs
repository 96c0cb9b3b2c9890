//! The table of cases, edge by edge: a Node or none, the answers of its machine, and what the agent does.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words: Sized {
    /// This kubelet is installed.
    fn installed(self, kubelet: &str) -> Self;
    /// The machine is in this boot, and this was its last work.
    fn works(self, boot: &str, work: Value) -> Self;
    /// Annotations that the pass writes.
    fn writes(self, annotations: Value) -> Self;
    /// The condition after the pass. Before, it said that everything is current.
    fn says(self, reason: &str, message: &str) -> Self;
    /// The condition says for the first time that everything is current.
    fn current_from_now_on(self) -> Self;
    fn after(self, seconds: u64) -> Self;
    fn settles(self) -> Self;
    fn failed(self, code: Code, message: &str) -> Self;
    /// The same, with an Event.
    fn fails_for(self, reason: &'static str, code: Code, message: &str) -> Self;
}

impl Words for Case {
    fn installed(self, kubelet: &str) -> Self {
        self.answers(
            "node.versions",
            json!({"node": "n", "versions": {"kubelet": kubelet}}),
        )
    }

    fn works(self, boot: &str, work: Value) -> Self {
        self.answers(
            "node.work",
            json!({"node": "n", "bootId": boot, "machineId": "id-1", "work": work}),
        )
    }

    fn writes(mut self, annotations: Value) -> Self {
        self.patched()["metadata"]["annotations"] = annotations;
        self
    }

    fn says(mut self, reason: &str, message: &str) -> Self {
        self.patched()["status"]["conditions"] = json!([ready(), condition("False", reason, message, NOW)]);
        self
    }

    fn current_from_now_on(mut self) -> Self {
        self.patched()["status"]["conditions"] = json!([ready(), condition("True", "Current", "", NOW)]);
        self
    }

    fn after(self, seconds: u64) -> Self {
        self.next(Next::After(seconds * 1000))
    }

    fn settles(self) -> Self {
        self.next(Next::Settled(Some(10_000)))
    }

    fn failed(self, code: Code, message: &str) -> Self {
        self.fails_with(RetryClass::Short, code, message)
    }

    fn fails_for(self, reason: &'static str, code: Code, message: &str) -> Self {
        self.says(reason, message).event(reason).failed(code, message)
    }
}

// What the cases share: the agent of one node, whose machine has one package.

const EARLIER: &str = "2025-12-31T23:00:00Z";

const READY: &str = "alpha.node.caos.ch/ready";
const UPGRADE: &str = "alpha.node.caos.ch/upgrade";
const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
const DESIRED: &str = "alpha.kubelet.caos.ch/desired-version";
const CURRENT: &str = "alpha.kubelet.caos.ch/current-version";
const ENSURE: &str = r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.4"}}"#;
const REBOOT: &str = r#"node.reboot {"node":"n","bootId":"b-1"}"#;

fn ready() -> Value {
    json!({"type": "Ready", "status": "True"})
}

fn condition(status: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({
        "type": "PackagesEnsured", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    })
}

/// Work that succeeded, in this boot.
fn done(kubelet: &str, boot: &str) -> Value {
    json!({"versions": {"kubelet": kubelet}, "state": "done", "bootId": boot})
}

/// Work that the machine refused, in this boot.
fn refused(kubelet: &str, reason: &str) -> Value {
    json!({
        "versions": {"kubelet": kubelet}, "state": "failed", "bootId": "b-1",
        "error": {"code": "failed-precondition", "message": "want another one first", "reason": reason},
    })
}

/// There is no Node. The machine is initialized or not.
fn absent(initialized: bool) -> Case {
    on_the_machine(Case::absent("ORB-").manifest(crate::manifest()), initialized)
}

/// A Node with these annotations. Its machine is prepared and has kubelet 1.30.2.
fn present(annotations: Value) -> Case {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "uid-n", "annotations": annotations},
        "status": {
            "conditions": [ready(), condition("True", "Current", "", EARLIER)],
            "nodeInfo": {"machineID": "id-1"},
        },
    });
    on_the_machine(Case::new("ORB-", node).manifest(crate::manifest()), true)
}

/// The usual answers of the machine.
fn on_the_machine(case: Case, initialized: bool) -> Case {
    let versions = json!({"kubelet": "1.30.2"});
    case.config(json!({"node": "n"}))
        .answers(
            "node.seed",
            json!({"node": "n", "versions": versions, "initialized": initialized}),
        )
        .answers(
            "node.work",
            json!({"node": "n", "bootId": "b-1", "machineId": "id-1"}),
        )
        .answers("node.versions", json!({"node": "n", "versions": versions}))
        .answers("node.reboot-required", json!({"node": "n", "required": false}))
        .answers("node.ensure", json!({}))
        .answers("node.initialized", json!({}))
        .answers("node.reboot", json!({}))
}

/// A Node that wants kubelet 1.30.4 and has 1.30.2.
fn behind(ready: &str, allowed: &str) -> Case {
    present(json!({READY: ready, ALLOWED: allowed, DESIRED: "1.30.4", CURRENT: "1.30.2"}))
}

/// A Node that wants and has 1.30.2.
fn current(ready: &str, allowed: &str) -> Case {
    present(json!({READY: ready, ALLOWED: allowed, DESIRED: "1.30.2", CURRENT: "1.30.2"}))
}

polity_sdk::cases! { $ each_case of orbiter_node_agent::cases;

orb_06_the_packages_are_installed_first:
    absent(false)
        .answers("node.versions", json!({"node": "n", "versions": {}}))
        .acts([r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.2"}}"#])
        .notes("06")
        .after(10);

orb_06_packages_that_are_there_already_are_ensured_all_the_same:
    absent(false)
        .acts([r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.2"}}"#])
        .notes("06")
        .after(10);

orb_06_work_that_runs_is_waited_for:
    absent(false)
        .works("b-1", json!({"versions": {"kubelet": "1.30.2"}, "state": "running"}))
        .notes("06")
        .after(10);

orb_06_work_that_failed_is_begun_again:
    absent(false)
        .answers("node.versions", json!({"node": "n", "versions": {}}))
        .works("b-1", json!({
            "versions": {"kubelet": "1.30.2"}, "state": "failed", "bootId": "b-1",
            "error": {"code": "unavailable", "message": "no mirror"},
        }))
        .acts([r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.2"}}"#])
        .notes("06")
        .failed(Code::Unavailable, "no mirror");

orb_06_then_the_machine_reboots_once:
    absent(false)
        .works("b-1", done("1.30.2", "b-1"))
        .acts([REBOOT])
        .notes("06")
        .after(10);

orb_07_after_its_reboot_the_machine_is_prepared:
    absent(false)
        .works("b-2", done("1.30.2", "b-1"))
        .acts([r#"node.initialized {"node":"n"}"#])
        .notes("32 07")
        .after(10);

orb_07_a_node_of_an_earlier_machine_does_not_make_this_one_prepared:
    present(json!({READY: "true", DESIRED: "1.30.2", CURRENT: "1.30.2"}))
        .answers("node.seed", json!({"node": "n", "versions": {"kubelet": "1.30.2"}}))
        .works("b-1", done("1.30.2", "b-1"))
        .acts([REBOOT])
        .notes("06")
        .says("Rebooting", "the machine reboots")
        .after(10);

orb_10_a_machine_that_is_prepared_waits_for_its_node:
    absent(true)
        .after(10);

orb_10_what_is_wanted_and_installed_is_written_down_once_the_node_is_there:
    present(json!({}))
        .edited(|node| node["status"]["conditions"] = json!([ready()]))
        .notes("10")
        .writes(json!({READY: "true", DESIRED: "1.30.2", CURRENT: "1.30.2"}))
        .current_from_now_on()
        .settles();

orb_10_what_orbiter_has_said_since_comes_first:
    present(json!({DESIRED: "1.30.4"}))
        .notes("10 20")
        .writes(json!({READY: "false", CURRENT: "1.30.2"}))
        .says("Changing", "packages will be installed")
        .after(1);

orb_10_a_word_that_somebody_takes_away_does_not_end_a_change:
    present(json!({ALLOWED: "true", DESIRED: "1.30.2", CURRENT: "1.30.2"}))
        .works("b-1", done("1.30.2", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .notes("10 20")
        .writes(json!({READY: "false"}))
        .says("Changing", "packages will be installed")
        .after(1);

orb_10_a_word_that_somebody_takes_away_comes_back:
    present(json!({DESIRED: "1.30.2", CURRENT: "1.30.2"}))
        .works("b-2", done("1.30.2", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .notes("10")
        .writes(json!({READY: "true"}))
        .settles();

orb_11_12_what_is_as_it_is_wanted_is_left_alone:
    current("true", "false")
        .notes("11 12")
        .settles();

orb_11_an_agent_that_orbiter_did_not_install_follows_its_node:
    current("true", "false")
        .fails("node.seed", Code::NotFound)
        .notes("11 12")
        .settles();

orb_12_the_flag_alone_changes_nothing:
    current("true", "true")
        .notes("11 12")
        .settles();

orb_20_before_a_change_the_agent_says_that_it_is_not_ready_and_does_nothing_else:
    behind("true", "true")
        .notes("20")
        .writes(json!({READY: "false"}))
        .says("Changing", "packages will be installed")
        .after(1);

orb_20_without_permission_nothing_is_changed:
    behind("true", "false")
        .says("WaitingForPermission", "a change is wanted and not allowed yet")
        .after(10);

orb_20_where_the_binding_says_so_the_cordon_is_waited_for:
    behind("true", "true")
        .config(json!({"requireCordon": true}))
        .says("WaitingForCordon", "the node is not cordoned yet")
        .after(10);

orb_11_what_is_wanted_and_was_installed_by_somebody_else_is_written_down_and_stays_ready:
    behind("true", "false")
        .installed("1.30.4")
        .notes("21b 11 12")
        .writes(json!({CURRENT: "1.30.4"}))
        .settles();

orb_20_what_was_installed_by_somebody_else_and_needs_a_reboot_is_not_ready:
    behind("true", "true")
        .installed("1.30.4")
        .works("b-1", done("1.30.4", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .notes("21b 20")
        .writes(json!({READY: "false", CURRENT: "1.30.4"}))
        .says("Changing", "the machine will reboot")
        .after(1);

orb_20_what_somebody_else_has_installed_is_not_ready_either:
    current("true", "false")
        .installed("1.30.1")
        .notes("20 21b")
        .writes(json!({READY: "false", CURRENT: "1.30.1"}))
        .says("WaitingForPermission", "a change is wanted and not allowed yet")
        .after(10);

orb_21_then_packages_are_installed:
    behind("false", "true")
        .acts([ENSURE])
        .notes("21a")
        .says("Changing", "packages are being installed")
        .after(10);

orb_21_work_that_runs_is_waited_for:
    behind("false", "true")
        .works("b-1", json!({"versions": {"kubelet": "1.30.4"}, "state": "running"}))
        .says("Changing", "packages are being installed")
        .after(10);

orb_21_a_version_that_does_not_exist_is_said_and_tried_again:
    behind("false", "true")
        .works("b-1", json!({
            "versions": {"kubelet": "1.30.4"}, "state": "failed", "bootId": "b-1",
            "error": {"code": "not-found", "message": "no kubelet 1.30.4"},
        }))
        .acts([ENSURE])
        .notes("21a")
        .fails_for("NoSuchVersion", Code::NotFound, "no kubelet 1.30.4");

orb_21_what_failed_before_stays_said_while_it_is_tried_again:
    behind("false", "true")
        .edited(|node| {
            node["status"]["conditions"][1] = condition("False", "NoSuchVersion", "no kubelet 1.30.4", EARLIER);
        })
        .works("b-1", json!({"versions": {"kubelet": "1.30.4"}, "state": "running"}))
        .after(10);

orb_21_a_node_that_upgrades_kubernetes_tells_its_machine_how:
    behind("false", "true")
        .edited(|node| node["metadata"]["annotations"][UPGRADE] = "apply".into())
        .acts([r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.4"},"upgrade":"apply"}"#])
        .notes("21a")
        .says("Changing", "packages are being installed")
        .after(10);

orb_21_a_way_to_upgrade_that_does_not_exist_never_reaches_the_machine:
    behind("false", "true")
        .edited(|node| node["metadata"]["annotations"][UPGRADE] = "apply --force".into())
        .fails_for(
            "InvalidUpgrade",
            Code::InvalidArgument,
            "\"apply --force\" in alpha.node.caos.ch/upgrade is neither apply nor node",
        );

orb_21_what_the_machine_refuses_is_said_with_its_reason_and_tried_again:
    behind("false", "true")
        .works("b-1", refused("1.30.4", "VersionSkew"))
        .acts([ENSURE])
        .notes("21a")
        .fails_for("VersionSkew", Code::FailedPrecondition, "want another one first");

orb_21_a_reason_that_nobody_knows_is_a_failure_like_others:
    behind("false", "true")
        .works("b-1", refused("1.30.4", "Moonlight"))
        .acts([ENSURE])
        .notes("21a")
        .fails_for("EnsureFailed", Code::FailedPrecondition, "want another one first");

orb_21_what_the_machine_refused_stays_said_while_it_is_tried_again:
    behind("false", "true")
        .edited(|node| {
            node["status"]["conditions"][1] = condition("False", "DiskFull", "make room", EARLIER);
        })
        .works("b-1", json!({"versions": {"kubelet": "1.30.4"}, "state": "running"}))
        .after(10);

orb_21_what_failed_after_everything_was_installed_is_not_ready:
    current("false", "true")
        .works("b-1", refused("1.30.2", "UpgradeFailed"))
        .acts([r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.2"}}"#])
        .notes("21a")
        .fails_for("UpgradeFailed", Code::FailedPrecondition, "want another one first");

orb_06_what_a_new_machine_refuses_is_tried_again:
    absent(false)
        .answers("node.versions", json!({"node": "n", "versions": {}}))
        .works("b-1", refused("1.30.2", "DiskFull"))
        .acts([r#"node.ensure {"node":"n","versions":{"kubelet":"1.30.2"}}"#])
        .notes("06")
        .failed(Code::FailedPrecondition, "want another one first");

orb_21_garbage_never_reaches_the_machine:
    behind("false", "true")
        .edited(|node| node["metadata"]["annotations"][DESIRED] = "1.30.4; reboot".into())
        .fails_for("InvalidVersion", Code::InvalidArgument, "\"1.30.4; reboot\" of kubelet is not a version");

orb_21_25_what_is_installed_is_written_down_and_a_reboot_comes_where_it_needs_one:
    behind("false", "true")
        .installed("1.30.4")
        .works("b-1", done("1.30.4", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .acts([REBOOT])
        .notes("21b 25")
        .writes(json!({CURRENT: "1.30.4"}))
        .says("Rebooting", "the machine reboots")
        .after(10);

orb_25_a_boot_that_is_over_is_not_ended_again:
    current("false", "true")
        .works("b-1", done("1.30.2", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .fails("node.reboot", Code::FailedPrecondition)
        .acts([REBOOT])
        .fails_for("RebootFailed", Code::FailedPrecondition, "no");

orb_26_a_change_that_needs_no_reboot_is_done:
    behind("false", "true")
        .installed("1.30.4")
        .works("b-1", done("1.30.4", "b-1"))
        .notes("21b 26")
        .writes(json!({READY: "true", CURRENT: "1.30.4"}))
        .settles();

orb_26_a_withdrawn_change_does_not_reboot:
    current("false", "false")
        .works("b-1", done("1.30.2", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .says("WaitingForPermission", "a change is wanted and not allowed yet")
        .after(10);

orb_32_after_the_reboot_the_change_is_done_whatever_else_wants_one:
    current("false", "true")
        .works("b-2", done("1.30.2", "b-1"))
        .answers("node.reboot-required", json!({"node": "n", "required": true}))
        .notes("32 26")
        .writes(json!({READY: "true"}))
        .settles();

a_machine_that_answers_for_another_node_is_left_alone:
    behind("false", "true")
        .answers("node.work", json!({"node": "other", "bootId": "b-1"}))
        .fails_for(
            "WrongNode",
            Code::FailedPrecondition,
            "the machine answers for node other, and this is the agent of n",
        );

a_node_that_another_machine_has_registered_is_left_alone:
    behind("false", "true")
        .edited(|node| node["status"]["nodeInfo"]["machineID"] = "id-2".into())
        .fails_for(
            "WrongNode",
            Code::FailedPrecondition,
            "the Node was registered by machine id-2, and this is id-1",
        );

a_machine_that_does_not_answer_is_asked_again:
    current("true", "false")
        .fails("node.work", Code::Unavailable)
        .fails_for("MachineFailed", Code::Unavailable, "no");
}
