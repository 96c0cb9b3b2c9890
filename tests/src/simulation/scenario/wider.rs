//! The part of a scenario beside Machines and Widgets: Sites and Guests of two tenants, swapped policies, bindings that
//! come and go, outdated answers of the API server, clocks that jump.

use polity_core::contract::Role;
use polity_sim::{FaultRule, Millis, Trouble};

use super::{Action, NAMESPACE, Scenario, Views};
use crate::simulation::kinds::{OTHER_TENANT, guest};
use crate::simulation::seed::Chance;
use crate::simulation::store::Place;

/// Adds what a seed makes happen beside Machines and Widgets.
pub(super) fn widen(scenario: &mut Scenario, chance: &mut Chance) {
    scenario.views = Views {
        relist: chance.pick(&[0, 10, 50]),
        behind: chance.pick(&[0, 0, 1_000, 10_000]),
    };
    for namespace in [NAMESPACE, OTHER_TENANT] {
        if chance.one_in(600) {
            sites(scenario, chance, namespace);
        }
        if chance.one_in(600) {
            guests(scenario, chance, namespace);
        }
    }
    swaps(scenario, chance);
    clocks(scenario, chance);
}

fn at(kind: &str, namespace: &str, name: &str) -> Place {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

impl Scenario {
    fn moment(&self, chance: &mut Chance) -> u64 {
        chance.between(0, self.quiet_at)
    }

    fn at_some_moment(&mut self, chance: &mut Chance, action: Action) {
        let when = self.moment(chance);
        self.actions.push((when, action));
    }
}

/// Two Sites, Widgets for them to count, Pods to drain, and people who take their ConfigMaps from them.
fn sites(scenario: &mut Scenario, chance: &mut Chance, namespace: &str) {
    for name in ["s0", "s1"] {
        let place = at("Site", namespace, name);
        scenario
            .actions
            .push((chance.between(0, 5_000), Action::Create(place.clone())));
        for _ in 0..chance.between(1, 6) {
            scenario.at_some_moment(chance, Action::Edit(place.clone()));
        }
        for _ in 0..chance.between(0, 4) {
            let map = at(
                "ConfigMap",
                namespace,
                &format!("{name}-{}", chance.between(0, 2)),
            );
            let action = match chance.between(0, 2) {
                0 => Action::Delete(map),
                _ => Action::Meddle(map),
            };
            scenario.at_some_moment(chance, action);
        }
        let pod = at("Pod", namespace, &format!("{name}-pod"));
        for _ in 0..chance.between(0, 3) {
            scenario.at_some_moment(chance, Action::Create(pod.clone()));
            scenario.at_some_moment(chance, Action::Delete(pod.clone()));
        }
        if chance.one_in(300) {
            scenario.at_some_moment(chance, Action::Delete(place.clone()));
            scenario.at_some_moment(chance, Action::Create(place));
        }
    }
    // Both want their turn at once.
    for _ in 0..chance.between(0, 2) {
        let when = scenario.moment(chance);
        for name in ["s0", "s1"] {
            let turn = serde_json::json!({"spec": {"turn": when}});
            scenario
                .actions
                .push((when, Action::Patch(at("Site", namespace, name), None, turn)));
        }
    }
    // Somebody writes what a Site is about to write.
    for _ in 0..chance.between(0, 3) {
        let (when, name) = (scenario.moment(chance), chance.pick(&["s0", "s1"]));
        let value = serde_json::json!({"spec": {"value": format!("v{when}"), "maps": 2}});
        let theirs = serde_json::json!({"data": {"value": "theirs"}});
        let map = at("ConfigMap", namespace, &format!("{name}-0"));
        let site = Action::Patch(at("Site", namespace, name), None, value);
        scenario.actions.push((when, site));
        for _ in 0..3 {
            let soon = when + chance.between(0, 60);
            scenario
                .actions
                .push((soon, Action::Patch(map.clone(), None, theirs.clone())));
        }
    }
    let widget = at("Widget", namespace, "counted");
    for _ in 0..chance.between(0, 2) {
        scenario.at_some_moment(chance, Action::Create(widget.clone()));
        scenario.at_some_moment(chance, Action::Delete(widget.clone()));
    }
}

/// Two Guests and their door.
fn guests(scenario: &mut Scenario, chance: &mut Chance, namespace: &str) {
    let door = at("ConfigMap", namespace, guest::DOOR);
    scenario.actions.push((0, Action::Create(door.clone())));
    for _ in 0..chance.between(0, 4) {
        scenario.at_some_moment(chance, Action::Edit(door.clone()));
    }
    for name in ["g0", "g1"] {
        let place = at("Guest", namespace, name);
        scenario
            .actions
            .push((chance.between(0, 5_000), Action::Create(place.clone())));
        for _ in 0..chance.between(0, 5) {
            scenario.at_some_moment(chance, Action::Edit(place.clone()));
        }
        if chance.one_in(400) {
            scenario.at_some_moment(chance, Action::Delete(place.clone()));
            scenario.at_some_moment(chance, Action::Create(place));
        }
    }
    for operation in ["machine.create", "machine.*"] {
        if chance.one_in(500) {
            let trouble = match chance.between(0, 3) {
                0 => Trouble::LoseRequest,
                1 => Trouble::LoseAnswer,
                2 => Trouble::HappenLate(Millis(chance.between(1_000, 40_000))),
                _ => Trouble::AnswerAfter(Millis(chance.between(1_000, 8_000))),
            };
            scenario.cloud.faults.push(FaultRule {
                until: Some(Millis(scenario.quiet_at)),
                probability: Some(chance.pick(&[0.05, 0.3, 0.6])),
                ..FaultRule::new(operation, trouble)
            });
        }
    }
}

fn swaps(scenario: &mut Scenario, chance: &mut Chance) {
    for _ in 0..chance.between(0, 5) {
        let (name, role) = chance.pick(&[
            ("sites", Role::Lifecycle),
            ("sites", Role::Retry),
            ("sites", Role::Retry),
            ("guests", Role::Lifecycle),
            ("guests", Role::Identity),
        ]);
        scenario.at_some_moment(chance, Action::Swap(name, role));
    }
    for name in ["guests", "machines", "sites", "widgets"] {
        if chance.one_in(150) {
            let when = scenario.moment(chance);
            scenario.actions.push((when, Action::Unbind(name)));
            scenario
                .actions
                .push((when + chance.between(100, 30_000), Action::Bind(name)));
        }
    }
}

fn clocks(scenario: &mut Scenario, chance: &mut Chance) {
    for _ in 0..chance.between(0, 2) {
        let host = chance.between(0, scenario.hosts as u64 - 1) as usize;
        let action = match chance.between(0, 2) {
            // Without client tokens a cloud knows its clones by when they began: it has the clock of its hosts.
            0 if scenario.cloud.tokens => Action::Skew(host, chance.between(1_000, 600_000).cast_signed()),
            1 if scenario.cloud.tokens => Action::Skew(host, -chance.between(1_000, 600_000).cast_signed()),
            // Its boot clock has gone on meanwhile.
            _ => Action::Pause(host, chance.between(100, 60_000)),
        };
        scenario.at_some_moment(chance, action);
    }
}
