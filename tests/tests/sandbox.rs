//! The sandbox with files that are not policies, and with policies that misbehave.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polity_core::binding::Limits;
use polity_core::contract::{Ask, Cause, Code, Entry, Failure, Pass, Request, Requests, Role, Step};
use polity_core::fault::{Fault, FaultKind, StepOutput};
use polity_sandbox::{Allocation, Compiler, Confined, LoadError, Policy, Sandbox, SandboxConfig, Stopped};
use polity_tests::guests;

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new(SandboxConfig::new(Compiler::InProcess)).expect("an engine"))
}

fn hostile() -> Arc<Policy> {
    sandbox()
        .load(guests::hostile())
        .expect("it loads: it misbehaves later")
}

fn pass(mischief: &str) -> Pass {
    Pass {
        object: Some(
            r#"{"apiVersion":"test.polity.example/v1","kind":"Thing","metadata":{"name":"t","uid":"u"}}"#
                .into(),
        ),
        now: 1_000,
        causes: vec![Cause::Created],
        attempt: 0,
        config: format!(r#"{{"mischief":"{mischief}"}}"#).into(),
        pending: Vec::new(),
        journal: Vec::new(),
    }
}

fn step(mischief: &str) -> StepOutput {
    hostile().step(&pass(mischief), &Limits::default())
}

fn fault(mischief: &str) -> Fault {
    step(mischief).outcome.expect_err("a fault")
}

fn refusal(bytes: &[u8]) -> String {
    match sandbox().load(bytes) {
        Ok(policy) => panic!("{:?} was loaded", policy.id()),
        Err(e) => e.to_string(),
    }
}

#[test]
fn an_empty_file_is_refused_as_empty() {
    assert_eq!(refusal(b""), "the file is empty");
}

#[test]
fn a_file_that_is_not_wasm_is_refused_by_name() {
    assert!(refusal(b"#!/bin/sh\n").contains("not WebAssembly"));
}

#[test]
fn a_truncated_policy_is_refused() {
    let whole = guests::hostile();
    for length in [5, 8, 100, whole.len() / 2, whole.len() - 1] {
        assert!(
            sandbox().load(&whole[..length]).is_err(),
            "{length} bytes were loaded"
        );
    }
}

#[test]
fn a_module_that_is_no_policy_is_refused() {
    // The smallest core module, and the smallest component.
    assert!(
        refusal(b"\0asm\x01\0\0\0").contains("not a policy")
            || refusal(b"\0asm\x01\0\0\0").contains("exports")
    );
    assert!(refusal(b"\0asm\x0d\0\x01\0").contains("exports nothing"));
}

#[test]
fn a_component_with_another_import_is_refused_by_its_name() {
    let component = r#"(component (import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64))))))"#;
    let refused = refusal(&wat::parse_str(component).expect("a component"));
    assert!(refused.contains("wasi:clocks/monotonic-clock@0.2.0"), "{refused}");
}

#[test]
fn a_component_of_another_version_of_the_contract_is_refused() {
    let component = r#"(component (instance $i) (export "polity:policy/lifecycle@9.0.0" (instance $i)))"#;
    let refused = refusal(&wat::parse_str(component).expect("a component"));
    assert!(refused.contains("polity:policy/lifecycle@9.0.0"), "{refused}");
}

#[test]
fn a_policy_that_is_too_large_is_refused_before_it_is_compiled() {
    let small = Sandbox::new(SandboxConfig {
        largest: 1_000,
        ..SandboxConfig::new(Compiler::InProcess)
    })
    .expect("an engine");
    let refused = small.load(guests::hostile());
    assert!(matches!(refused, Err(LoadError::TooLarge { largest: 1_000, .. })));
}

#[test]
fn a_core_module_and_the_component_made_of_it_both_load() {
    let component = wit_component::ComponentEncoder::default()
        .module(guests::hostile())
        .and_then(|mut encoder| encoder.encode())
        .expect("a component");
    let loaded = sandbox().load(&component).expect("it loads");
    assert_eq!(loaded.role(), Role::Lifecycle);
    assert_eq!(loaded.manifest(), hostile().manifest());
    assert_ne!(loaded.id(), hostile().id());
}

#[test]
fn a_policy_is_compiled_once_and_known_by_its_bytes() {
    assert!(Arc::ptr_eq(&hostile(), &hostile()));
}

#[test]
fn every_step_starts_in_a_fresh_instance() {
    for _ in 0..3 {
        let Ok(Step::Concluded { conclusion, .. }) = step("behave").outcome else {
            panic!("no conclusion")
        };
        assert_eq!(conclusion.notes, ["call-1"]);
    }
}

#[test]
fn the_same_step_returns_the_same_and_uses_the_same_fuel() {
    for mischief in ["behave", "panic", "recurse", "ask-ungranted"] {
        let (a, b) = (step(mischief), step(mischief));
        assert_eq!(a, b, "{mischief}");
        assert!(a.fuel > 0);
    }
}

#[test]
fn questions_take_fuel_in_proportion_to_their_number() {
    // Of the step that asks, and of the step that has the answers: of each question.
    let fuel = |mischief: &str, count: usize| {
        let limits = Limits {
            step_fuel: 100_000_000,
            ..Limits::default()
        };
        let asked = hostile().step(&pass(mischief), &limits);
        let Ok(Step::Pending(Requests::Asks(asks))) = asked.outcome else {
            panic!("{asked:?}")
        };
        assert_eq!(asks.len(), count);
        let answered = |ask: Ask| Entry {
            request: Request::Ask(ask),
            answer: Err(Failure::new(Code::ResourceExhausted, "there is no room for it")),
        };
        let mut pass = pass(mischief);
        pass.journal = asks.into_iter().map(answered).collect();
        let concluded = hostile().step(&pass, &limits);
        assert!(
            matches!(concluded.outcome, Ok(Step::Concluded { .. })),
            "{concluded:?}"
        );
        [asked.fuel, concluded.fuel].map(|fuel| fuel / count as u64)
    };
    let (few, many) = (fuel("parts", 250), fuel("lists", 900));
    for (few, many) in few.into_iter().zip(many) {
        assert!(many < few * 3 / 2, "{few} of 250, {many} of 900");
    }
}

#[test]
fn an_endless_loop_runs_out_of_fuel() {
    let stepped = step("loop");
    assert_eq!(stepped.outcome.expect_err("a fault").kind, FaultKind::OutOfFuel);
    assert_eq!(stepped.fuel, Limits::default().step_fuel);
}

#[test]
fn a_loop_with_more_fuel_than_time_meets_the_wall_limit_and_says_it_is_not_deterministic() {
    let limits = Limits {
        step_fuel: u64::MAX / 2,
        step_wall: Duration::from_millis(50),
        ..Limits::default()
    };
    let fault = hostile()
        .step(&pass("loop"), &limits)
        .outcome
        .expect_err("a fault");
    assert_eq!((fault.kind, fault.deterministic), (FaultKind::WallTime, false));
}

#[test]
fn endless_recursion_is_a_trap() {
    let fault = fault("recurse");
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
}

#[test]
fn allocating_without_end_meets_the_memory_limit() {
    let limits = Limits {
        // With the default it runs out of fuel first.
        step_fuel: 50_000_000,
        ..Limits::default()
    };
    let stepped = hostile().step(&pass("allocate"), &limits);
    let fault = stepped.outcome.expect_err("a fault");
    assert_eq!(fault.kind, FaultKind::OutOfMemory, "{fault}");
}

/// The misbehaving policy, which behaves, with instances of another module beside its own; loaded.
fn beside(module: &str, instances: u32) -> Result<Arc<Policy>, LoadError> {
    let module = wat::parse_str(module).expect("a module");
    sandbox().load(&guests::with_instances(guests::hostile(), &module, instances))
}

/// Why a policy with such instances is refused; a small one, which compiles faster.
fn refused(module: &str, instances: u32) -> String {
    let module = wat::parse_str(module).expect("a module");
    let policy = guests::with_instances(guests::hostile_retry(), &module, instances);
    match sandbox().load(&policy) {
        Ok(policy) => panic!("{:?} was loaded", policy.id()),
        Err(e) => e.to_string(),
    }
}

/// What comes of a step in 4 MiB.
fn step_of(policy: &Policy) -> StepOutput {
    let limits = Limits {
        memory: 4 << 20,
        ..Limits::default()
    };
    policy.step(&pass("behave"), &limits)
}

#[test]
fn the_memories_of_all_instances_of_a_step_count_together() {
    // 1 MiB each.
    let few = beside("(module (memory 16))", 2).expect("it loads");
    assert!(step_of(&few).outcome.is_ok());
    let many = beside("(module (memory 16))", 6).expect("it loads: describe may have 16 MiB");
    let fault = step_of(&many).outcome.expect_err("a fault");
    assert_eq!(fault.kind, FaultKind::OutOfMemory, "{fault}");
    assert!(
        fault.message.contains("the limit of a step is 4194304"),
        "{fault}"
    );
}

#[test]
fn memories_that_grow_when_a_step_begins_count_as_those_that_begin_so() {
    let grows = "(module (memory 1) (func $grow (drop (memory.grow (i32.const 15)))) (start $grow))";
    let many = beside(grows, 6).expect("it loads: describe may have 16 MiB");
    let fault = step_of(&many).outcome.expect_err("a fault");
    assert_eq!(fault.kind, FaultKind::OutOfMemory, "{fault}");
    // What its own maximum forbids never grows, and does not count.
    let tries = "(module (memory 1 1) (func $grow (drop (memory.grow (i32.const 60)))) (start $grow))";
    let tries = beside(tries, 6).expect("it loads");
    assert!(step_of(&tries).outcome.is_ok());
}

#[test]
fn the_tables_of_all_instances_of_a_step_count_with_its_memories() {
    let many = beside("(module (table 60000 funcref))", 10).expect("it loads: describe may have 16 MiB");
    let fault = step_of(&many).outcome.expect_err("a fault");
    assert_eq!(fault.kind, FaultKind::OutOfMemory, "{fault}");
}

#[test]
fn a_policy_that_begins_with_more_than_a_step_may_have_is_refused_when_it_describes_itself() {
    for module in [
        // 4 MiB at once, in small steps, and as a table.
        "(module (memory 64))",
        "(module (memory 1)
            (func $grow (loop (br_if 0 (i32.lt_s (memory.grow (i32.const 1)) (i32.const 63))))) (start $grow))",
        "(module (table 300000 funcref))",
    ] {
        let why = refused(module, 6);
        assert!(why.contains("describe failed: OutOfMemory: "), "{module}: {why}");
        assert!(why.contains("the limit of a step is 16777216"), "{module}: {why}");
    }
}

#[test]
fn a_step_has_so_many_instances_tables_and_memories_and_no_more() {
    for (module, most, what) in [
        ("(module)", 64, "instance count too high"),
        (
            "(module (table 0 funcref) (table 0 funcref))",
            31,
            "table count too high",
        ),
        ("(module (memory 0))", 7, "memory count too high"),
        (
            "(module (memory 0) (memory 0) (memory 0))",
            2,
            "memory count too high",
        ),
    ] {
        let why = refused(module, most + 1);
        assert!(why.contains("describe failed: OutOfMemory: "), "{module}: {why}");
        assert!(why.contains(what), "{module}: {why}");
    }
    // Other languages come with a few dozen.
    assert!(
        step_of(&beside("(module (table 10 funcref))", 50).expect("it loads"))
            .outcome
            .is_ok()
    );
    assert!(
        step_of(&beside("(module (memory 1))", 7).expect("it loads"))
            .outcome
            .is_ok()
    );
}

#[test]
fn instances_that_take_much_of_the_host_beside_their_memory_are_refused() {
    let globals = "(global (mut i64) (i64.const 0))".repeat(60_000);
    let why = refused(&format!("(module {globals})"), 60);
    assert!(why.contains("describe failed: OutOfMemory: "), "{why}");
    // What the policy itself takes comes on top.
    assert!(why.contains("together would take 57"), "{why}");
}

#[test]
fn a_policy_says_with_how_much_memory_its_steps_begin() {
    let plain = hostile().memory();
    let more = beside("(module (memory 16) (table 1000 funcref))", 2).expect("it loads");
    assert_eq!(more.memory(), plain + 2 * ((1 << 20) + 16_000));
}

#[test]
fn limits_as_large_as_numbers_go_are_limits() {
    let limits = Limits {
        step_fuel: u64::MAX,
        pass_fuel: u64::MAX,
        memory: u64::MAX,
        step_wall: Duration::MAX,
        output: u64::MAX,
        ..Limits::default()
    };
    for mischief in ["behave", "panic", "huge", "stall"] {
        hostile().step(&pass(mischief), &limits).outcome.ok();
    }
}

#[test]
fn machine_code_is_kept_by_its_bytes_and_dropped_when_nobody_runs_it() {
    let sandbox = Sandbox::new(SandboxConfig {
        kept_code: 0,
        ..SandboxConfig::new(Compiler::InProcess)
    })
    .expect("an engine");
    let policy = sandbox.load(guests::hostile()).expect("it loads");
    let id = policy.id().clone();
    let again = sandbox.load(guests::hostile()).expect("it loads");
    assert!(Arc::ptr_eq(&policy, &again), "somebody runs it");
    drop((policy, again));
    assert!(sandbox.known(&id).is_none(), "nobody runs it");

    let all = SandboxConfig::new(Compiler::InProcess);
    assert!(all.kept_code >= 2 * all.largest_code);
    let small = Sandbox::new(SandboxConfig {
        largest_code: 10_000,
        ..SandboxConfig::new(Compiler::InProcess)
    })
    .expect("an engine");
    let refused = small.load(guests::hostile());
    assert!(matches!(
        refused,
        Err(LoadError::CompiledTooLarge { largest: 10_000, .. })
    ));
}

/// A sandbox whose policies are compiled by processes of their own.
fn confined() -> SandboxConfig {
    SandboxConfig::new(Compiler::Child(Confined::program(env!(
        "CARGO_BIN_EXE_polity-under-test"
    ))))
}

#[test]
fn a_policy_that_another_process_compiles_does_the_same() {
    for allocation in [Allocation::OnDemand, Allocation::Pooling] {
        let load = |config: SandboxConfig| {
            let sandbox = Sandbox::new(SandboxConfig { allocation, ..config }).expect("an engine");
            sandbox.load(guests::hostile()).expect("it loads")
        };
        let (own, other) = (load(SandboxConfig::new(Compiler::InProcess)), load(confined()));
        assert_eq!(own.manifest(), other.manifest());
        for mischief in ["behave", "panic", "garbage", "loop"] {
            let limits = Limits::default();
            let (own, other) = (
                own.step(&pass(mischief), &limits),
                other.step(&pass(mischief), &limits),
            );
            assert_eq!(own, other, "{mischief}");
        }
    }
}

#[test]
fn another_process_refuses_in_the_same_words() {
    let sandbox = Sandbox::new(confined()).expect("an engine");
    let whole = guests::hostile();
    let mut damaged = whole.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    for bytes in [&b""[..], b"#!/bin/sh\n", &whole[..5]] {
        let Err(e) = sandbox.load(bytes) else {
            panic!("{} bytes were loaded", bytes.len())
        };
        assert!(!e.may_pass(), "{e}");
        assert_eq!(e.to_string(), refusal(bytes));
    }
    // Where tools give up, nobody knows whether it was for the bytes or for want of memory.
    for bytes in [&whole[..middle], &damaged] {
        match sandbox.load(bytes) {
            Err(LoadError::Stopped(Stopped::Panicked(_))) => {}
            Err(e) => assert_eq!(e.to_string(), refusal(bytes)),
            Ok(_) => panic!("{} bytes were loaded", bytes.len()),
        }
    }
}

#[test]
fn compiling_that_takes_too_much_memory_is_stopped_with_its_process() {
    let sandbox = Sandbox::new(SandboxConfig {
        compile_memory: 300 << 20,
        ..confined()
    })
    .expect("an engine");
    let stopped = sandbox.load(&guests::component_of(&[guests::bomb(600_000)]));
    let Err(LoadError::Stopped(Stopped::Memory(most))) = stopped else {
        panic!("{:?}", stopped.map(|policy| policy.id().clone()))
    };
    assert_eq!(most, 300 << 20);
    sandbox.load(guests::hostile()).expect("others fit");
}

#[test]
fn what_is_shipped_takes_at_most_half_of_the_memory_that_compiling_it_may_take() {
    // Of the policies and of the drivers, the one that takes most.
    let shipped: [&[u8]; 2] = [
        include_bytes!(env!("GUEST_MCM_MACHINE")),
        include_bytes!(env!("GUEST_POLITY_DRIVER_OPENSTACK")),
    ];
    for bytes in shipped {
        let half = SandboxConfig {
            compile_memory: (192 << 20) + 64 * bytes.len() as u64,
            ..confined()
        };
        let loaded = Sandbox::new(half).expect("an engine").load(bytes);
        assert!(
            !matches!(loaded, Err(LoadError::Stopped(_))),
            "{:?}",
            loaded.err()
        );
    }
}

#[test]
fn compiling_that_takes_too_long_is_stopped_with_its_process() {
    let sandbox = Sandbox::new(confined()).expect("an engine");
    // Each module alone takes little memory, and all of them together take long.
    let bomb = guests::component_of(&vec![guests::bomb(20_000); 40]);
    let second = std::time::Duration::from_secs(1);
    let stopped = sandbox.load_within(&bomb, second);
    let Err(LoadError::Stopped(Stopped::Time(time))) = stopped else {
        panic!("{:?}", stopped.map(|policy| policy.id().clone()))
    };
    assert_eq!(time, second);
}

#[test]
fn a_panic_says_what_and_where() {
    let fault = fault("panic");
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("out of cheese"), "{fault}");
    assert!(fault.message.contains("hostile/src/lib.rs"), "{fault}");
}

#[test]
fn a_text_that_is_not_utf8_is_bad_output() {
    assert_eq!(fault("garbage").kind, FaultKind::BadOutput);
}

#[test]
fn a_very_long_answer_is_bad_output() {
    assert_eq!(fault("huge").kind, FaultKind::BadOutput);
}

#[test]
fn waiting_for_nothing_is_pending_with_no_requests() {
    assert_eq!(
        step("stall").outcome,
        Ok(Step::Pending(Requests::Acts(Vec::new())))
    );
}

#[test]
fn a_pool_runs_the_same_steps_to_the_same_ends() {
    let pooled = Sandbox::new(SandboxConfig {
        allocation: Allocation::Pooling,
        ..SandboxConfig::new(Compiler::InProcess)
    });
    let policy = pooled
        .expect("an engine")
        .load(guests::hostile())
        .expect("it loads");
    for mischief in ["behave", "panic", "garbage", "stall", "loop"] {
        // The fuel differs: without copy-on-write, filling the memory is part of the step. A recording names the engine.
        let other = policy.step(&pass(mischief), &Limits::default());
        assert_eq!(other.outcome, step(mischief).outcome, "{mischief}");
    }
}
