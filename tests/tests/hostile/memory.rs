//! Components that use resources beside the memory of one module: many instances, tables, a start function
//! that does not end. Such a policy is not loaded, and looking at it does not harm the host.

use polity_tests::fuzz::loader::sections;
use polity_tests::guests;

use crate::hostile::stage::{Stage, with_retry};

/// A component that takes more than it should.
pub(crate) struct Takes {
    /// A word for it.
    pub(crate) name: &'static str,
    /// The module that is added to a policy, as text.
    module: String,
    /// How many instances of it.
    times: u32,
    /// One of these words says why it is not loaded.
    words: &'static [&'static str],
}

pub(crate) fn rows() -> Vec<Takes> {
    let row = |name, module: &str, times, words| Takes {
        name,
        module: module.into(),
        times,
        words,
    };
    const MEMORY: &[&str] = &["memory", "memories"];
    const ANY: &[&str] = &[
        "memory",
        "memories",
        "table",
        "instance",
        "describe",
        "fuel",
        "stack",
        "does not compile",
    ];
    vec![
        row("memories-that-add-up", "(module (memory 240))", 30, MEMORY),
        row(
            "memories-that-grow",
            "(module (memory 1) (func $s (drop (memory.grow (i32.const 200)))) (start $s))",
            30,
            MEMORY,
        ),
        row("a-memory-that-is-too-large", "(module (memory 65536))", 1, MEMORY),
        row(
            "a-table-that-is-too-large",
            "(module (table 100000000 funcref))",
            1,
            ANY,
        ),
        row("tables-that-add-up", "(module (table 1000000 funcref))", 60, ANY),
        row(
            "tables-that-grow",
            "(module (table $t 1 funcref) (func $s (drop (table.grow $t (ref.null func) (i32.const 2000000)))) (start $s))",
            60,
            ANY,
        ),
        row("instances-by-the-thousand", "(module (memory 1))", 5_000, ANY),
        row(
            "a-start-that-loops",
            "(module (func $s (loop $l (br $l))) (start $s))",
            1,
            &["fuel"],
        ),
        row(
            "a-start-that-recurses",
            "(module (func $s (call $s)) (start $s))",
            1,
            &["stack", "fuel"],
        ),
        row(
            "a-start-that-traps",
            "(module (func $s unreachable) (start $s))",
            1,
            &["unreachable"],
        ),
        row(
            "many-memories-in-one-module",
            &format!("(module {})", "(memory 1) ".repeat(90)),
            1,
            ANY,
        ),
        row(
            "many-tables-in-one-module",
            &format!("(module {})", "(table 100000 funcref) ".repeat(90)),
            1,
            ANY,
        ),
    ]
}

/// A policy with so many instances of another module beside its own.
fn beside(module: &str, times: u32) -> Vec<u8> {
    let module = wat::parse_str(module).expect("a module");
    let mut component = wit_component::ComponentEncoder::default()
        .module(guests::verbatim_retry())
        .and_then(|mut encoder| encoder.encode())
        .expect("a component");
    let modules = sections(&component).filter(|section| section.id == 1).count();
    section(&mut component, 1, &module);
    let mut instances = leb(u64::from(times));
    for _ in 0..times {
        // An instance of this module, with nothing to import.
        instances.push(0);
        instances.extend(leb(modules as u64));
        instances.push(0);
    }
    section(&mut component, 2, &instances);
    component
}

fn section(component: &mut Vec<u8>, id: u8, content: &[u8]) {
    component.push(id);
    component.extend(leb(content.len() as u64));
    component.extend_from_slice(content);
}

/// A number as WebAssembly writes it.
fn leb(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        bytes.push(byte | if number > 0 { 0x80 } else { 0 });
        if number == 0 {
            return bytes;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_component_takes_is_counted_over_all_its_instances() {
    let stage = Stage::with(Vec::new()).await;
    let mut wrong = Vec::new();
    let rows = rows();
    for row in rows.iter().filter(|row| crate::hostile::is_chosen(row.name)) {
        let file = format!("{}.wasm", row.name);
        stage.fixture.put(&file, &beside(&row.module, row.times));
        stage.fixture.apply(&with_retry(row.name)).await;
        let loaded = stage.loaded(row.name).await;
        let message = loaded["message"].as_str().unwrap_or_default();
        if loaded["status"] != "False" || !row.words.iter().any(|word| message.contains(word)) {
            wrong.push(format!("{}: {loaded}", row.name));
        }
    }
    stage.play().await;
    if stage.passes_of_neighbours() != crate::hostile::undisturbed().await {
        wrong.push("the neighbours passed less".into());
    }
    crate::hostile::is_right(&wrong, rows.len());
}
