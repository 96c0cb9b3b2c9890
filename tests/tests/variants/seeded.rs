//! Small changes of the shipped policies' sources, each with what `polity replay` says of it on the recording of a story of
//! `swapped.rs`, and nothing else.

use super::Variant;
use super::fixture::Stage;

/// A change, and the groups of the report.
pub(super) struct Seeded {
    pub(super) variant: Variant,
    groups: &'static [&'static str],
}

pub(super) const ALL: &[Seeded] = &[
    // A default.
    Seeded {
        variant: Variant {
            name: "capv-resync",
            of: "capv-machine",
            changes: &[(
                "config.rs",
                "resync: Period::from_secs(600)",
                "resync: Period::from_secs(300)",
            )],
        },
        groups: &["next : settled, again after 10m → settled, again after 5m"],
    },
    // A guard: nothing is changed for a while after a failed task.
    Seeded {
        variant: Variant {
            name: "capv-no-backoff",
            of: "capv-machine",
            changes: &[(
                "backoff.rs",
                "(until > cx.now()).then_some(until)",
                "(until > latest).then_some(until)",
            )],
        },
        groups: &[r#"would-act vm.clone: - → {"coresPerSocket":2,"cpus":2,"instanceUuid":"$uid","memoryMi…"#],
    },
    // A forgotten finalizer: the object stays for ever.
    Seeded {
        variant: Variant {
            name: "capv-keeps-finalizer",
            of: "capv-machine",
            changes: &[("delete.rs", "machine.metadata.remove_finalizer(FINALIZER);", "")],
        },
        groups: &["patch metadata.finalizers[]: - → capv.polity.dev/machine"],
    },
    // An intent: in mid-flight that is a second VM.
    Seeded {
        variant: Variant {
            name: "capv-intent",
            of: "capv-machine",
            changes: &[(
                "live.rs",
                "(&machine.metadata.name, &machine.spec)",
                "(&machine.metadata.uid, &machine.spec)",
            )],
        },
        groups: &["intent vm.clone: $name → $uid"],
    },
    // A period.
    Seeded {
        variant: Variant {
            name: "capv-period",
            of: "capv-machine",
            changes: &[(
                "lib.rs",
                "Next::after(cx.config().requeue_period)",
                "Next::after(Duration::from_secs(60))",
            )],
        },
        groups: &["next : after 20s → after 1m"],
    },
    // An order: a VM is removed before its ports are given back.
    Seeded {
        variant: Variant {
            name: "rug-vm-first",
            of: "rug-router",
            changes: &[("stop.rs", PORTS, ""), ("stop.rs", VM, VM_AND_PORTS)],
        },
        groups: &["order router.delete-ports: - → router.delete"],
    },
    // A wait.
    Seeded {
        variant: Variant {
            name: "retry-short",
            of: "mcm-retry",
            changes: &[(
                "config.rs",
                "short: Period::from_secs(5)",
                "short: Period::from_secs(7)",
            )],
        },
        groups: &[
            "wait lifecycle short (deadline-exceeded of machine.create), attempt 0: 5s → 7s",
            "wait lifecycle short (failed-precondition), attempt 0: 5s → 7s",
            "wait lifecycle short (unknown), attempt 1: 5s → 7s",
            "wait lifecycle short, attempt 0: 5s → 7s",
        ],
    },
];

const PORTS: &str = "    if !leaving && !router.status.ports.is_empty() {
        match cx.act(delete_ports(&router.metadata.name)).await.found() {
            Ok(_) => router.status.ports.clear(),
            Err(failure) => return Ok(Err(failure)),
        }
    }
";
const VM: &str = "    if let Err(failure) = cx.act(delete(&vm.id)).await.found() {
        return Ok(Err(failure));
    }
";
const VM_AND_PORTS: &str = "    if let Err(failure) = cx.act(delete(&vm.id)).await.found() {
        return Ok(Err(failure));
    }
    let _ = cx.act(delete_ports(&router.metadata.name)).await;
    router.status.ports.clear();
";

/// Each change of a policy is named, and nothing else, where the passes of a stage are judged.
pub(super) fn each_is_named(stage: &Stage, policy: &str) {
    let of_policy = ALL.iter().filter(|seeded| seeded.variant.of == policy);
    let mut rows = of_policy.peekable();
    assert!(rows.peek().is_some(), "{policy}");
    for Seeded { variant, groups } in rows {
        assert_eq!(stage.replayed(variant), *groups, "{}", variant.name);
    }
}
