//! The cases of `mcm-machine`, `mcm-machineclass`, `mcm-machineset`, `mcm-safety` and `mcm-identity`.

mod machine {
    use mcm_machine::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.run(crate::cases::lifecycle("mcm-machine"));
        case.check(&ended);
        let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_machine::reconcile));
        assert_eq!(ended, natively);
    }

    mcm_machine::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("mcm-machine", mcm_machine::manifest());
    }
}

mod class {
    use mcm_machineclass::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.run(crate::cases::lifecycle("mcm-machineclass"));
        case.check(&ended);
        let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_machineclass::reconcile));
        assert_eq!(ended, natively);
    }

    mcm_machineclass::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("mcm-machineclass", mcm_machineclass::manifest());
    }
}

mod set {
    use mcm_machineset::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.run(crate::cases::lifecycle("mcm-machineset"));
        case.check(&ended);
        let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_machineset::reconcile));
        assert_eq!(ended, natively);
    }

    mcm_machineset::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("mcm-machineset", mcm_machineset::manifest());
    }
}

mod safety {
    use mcm_safety::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.run(crate::cases::lifecycle("mcm-safety"));
        case.check(&ended);
        let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_safety::reconcile));
        assert_eq!(ended, natively);
    }

    mcm_safety::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("mcm-safety", mcm_safety::manifest());
    }
}

mod identity {
    use mcm_identity::cases::Case;

    fn in_the_sandbox(case: Case) {
        let ended = case.judge(crate::cases::identity("mcm-identity"));
        case.check_judged(&ended);
        let natively = case.judge(|pass| polity_sdk::step::identity(pass, mcm_identity::judge));
        assert_eq!(ended, natively);
    }

    mcm_identity::each_case!(in_the_sandbox);

    #[test]
    fn the_manifest_is_the_same_natively_and_as_a_component() {
        crate::cases::same_manifest("mcm-identity", mcm_identity::manifest());
    }
}

pub(crate) fn run_all(recorded: &crate::cases::Recorded) {
    for (_, case) in mcm_machine::cases::all() {
        case.run(recorded.lifecycle("mcm-machine"));
    }
    for (_, case) in mcm_machineclass::cases::all() {
        case.run(recorded.lifecycle("mcm-machineclass"));
    }
    for (_, case) in mcm_machineset::cases::all() {
        case.run(recorded.lifecycle("mcm-machineset"));
    }
    for (_, case) in mcm_safety::cases::all() {
        case.run(recorded.lifecycle("mcm-safety"));
    }
}
