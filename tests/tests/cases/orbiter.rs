//! The cases of `orbiter` and `orbiter-node-agent`.

mod cluster {
    use orbiter::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.run(crate::cases::lifecycle("orbiter"));
        case.check(&ended);
        let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, orbiter::reconcile));
        assert_eq!(ended, natively);
    }

    orbiter::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("orbiter", orbiter::manifest());
    }
}

mod agent {
    use orbiter_node_agent::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.run(crate::cases::lifecycle("orbiter-node-agent"));
        case.check(&ended);
        let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, orbiter_node_agent::reconcile));
        assert_eq!(ended, natively);
    }

    orbiter_node_agent::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("orbiter-node-agent", orbiter_node_agent::manifest());
    }
}

pub(crate) fn run_all(recorded: &crate::cases::Recorded) {
    for (_, case) in orbiter::cases::all() {
        case.run(recorded.lifecycle("orbiter"));
    }
    for (_, case) in orbiter_node_agent::cases::all() {
        case.run(recorded.lifecycle("orbiter-node-agent"));
    }
}
