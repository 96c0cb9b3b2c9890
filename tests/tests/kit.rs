//! The rules by which the SDK's test kit takes a conclusion are those of the host: whatever the objects and patches are.

use polity_core::contract::merge::{self, Edited};
use polity_core::object::Object;
use polity_core::plan::{self, Edits};
use serde_json::{Map, Value, json};

/// Draws, always the same.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        // Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("small")
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A value as they stand in objects and patches, of few names: they meet.
    fn value(&mut self, depth: usize) -> Value {
        let leaf = depth == 0;
        match self.below(if leaf { 4 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2)),
            2 => json!(self.one_of(&["a", "b"])),
            3 => self.list(),
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        const NAMES: [&str; 8] = [
            "conditions",
            "finalizers",
            "taints",
            "ownerReferences",
            "list",
            "status",
            "metadata",
            "dotted.name",
        ];
        let mut fields = Map::new();
        for _ in 0..self.below(4) {
            let name = self.one_of(&NAMES);
            let value = match name {
                "conditions" | "finalizers" | "taints" | "ownerReferences" if self.below(4) > 0 => {
                    self.list()
                }
                _ => self.value(depth),
            };
            fields.insert(name.to_owned(), value);
        }
        Value::Object(fields)
    }

    /// Elements with keys of every sort, sometimes one twice and sometimes none.
    fn list(&mut self) -> Value {
        let elements = (0..self.below(4)).map(|_| {
            let key = self.one_of(&["a", "b", "c"]);
            match self.below(5) {
                0 => json!(key),
                1 => json!({"type": key, "status": self.below(2)}),
                2 => json!({"key": key, "effect": self.one_of(&["x", "y"])}),
                3 => json!({"uid": key}),
                _ => json!(self.below(3)),
            }
        });
        elements.collect()
    }
}

#[test]
fn kit_and_host_merge_every_patch_to_the_same_object_and_name_the_same_edits() {
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    let mut edited = 0;
    for _ in 0..20_000 {
        let (snapshot, patch) = (draws.object(3), draws.object(3));
        let current = match draws.below(2) {
            0 => snapshot.clone(),
            _ => draws.object(3),
        };
        let edits = Edits::new(Object::new(snapshot.clone()), patch.clone());
        let case = format!("{patch} on {snapshot}, which is now {current}");
        assert_eq!(
            merge::onto(&snapshot, &patch, &current),
            edits.onto(&current),
            "{case}"
        );
        let known = edits.paths().into_iter();
        let known: Vec<Edited> = known.map(|(path, removes)| Edited { path, removes }).collect();
        assert_eq!(merge::edits(&snapshot, &patch), known, "{case}");
        edited += known.len();
    }
    assert!(edited > 20_000, "only {edited} values were edited");
}

#[test]
fn kit_and_host_agree_on_what_a_declared_path_covers() {
    let paths = [
        "",
        "status",
        "status.a",
        "status.ab",
        "status.a[x]",
        "status.a[xy]",
        "status.a.b",
    ];
    for declared in paths {
        for edited in paths {
            let covers = merge::declares(declared, edited);
            assert_eq!(
                covers,
                plan::declares(declared, edited),
                "{declared} and {edited}"
            );
        }
    }
}
