//! Edits of JSON. Objects come from API servers and patches come from policies, so neither may have the expected
//! shape. Every value is therefore named by its path, and no access can fail.
//!
//! `serde_json::Value` panics if code assigns a field of a scalar. So core assigns fields only in this module, and a
//! test checks that.

use serde_json::{Map, Value};

/// A JSON value for editing.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree(Value);

impl Tree {
    /// Takes a value for editing.
    pub fn new(value: Value) -> Self {
        Tree(value)
    }

    /// The value at a path; `None` if it is absent or null.
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        path.iter()
            .try_fold(&self.0, |value, field| value.get(*field))
            .filter(|value| !value.is_null())
    }

    /// Sets the value at a path. A value on the way that is no object is replaced by an object.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        set(&mut self.0, path, value.into());
    }

    /// Removes the value at a path, if there is one.
    pub fn remove(&mut self, path: &[&str]) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        let parent = parents
            .iter()
            .try_fold(&mut self.0, |value, field| value.get_mut(*field));
        if let Some(Value::Object(fields)) = parent {
            fields.remove(*last);
        }
    }

    /// The present value.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The present value.
    pub fn into_value(self) -> Value {
        self.0
    }
}

fn set(place: &mut Value, path: &[&str], value: Value) {
    let Some((field, rest)) = path.split_first() else {
        *place = value;
        return;
    };
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    if let Value::Object(fields) = place {
        set(fields.entry(*field).or_insert(Value::Null), rest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_shape_stands_in_the_way() {
        for shape in [json!(null), json!("x"), json!([1]), json!(7), json!({"a": "x"})] {
            let mut tree = Tree::new(shape.clone());
            tree.remove(&["a", "b"]);
            assert_eq!(tree.value(), &shape);
            assert_eq!(tree.get(&["a", "b"]), None);
            tree.set(&["a", "b"], 1);
            assert_eq!(tree.get(&["a", "b"]), Some(&json!(1)), "{shape}");
            tree.remove(&["a", "b"]);
            assert_eq!(tree.into_value(), json!({"a": {}}));
        }
    }

    /// `value["a"] = …` panics where `value` is a scalar.
    #[test]
    fn core_assigns_fields_of_json_nowhere_else() {
        let mut folders = vec![std::path::PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src"
        ))];
        let mut wrong = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
                let path = entry.expect("an entry").path();
                if path.file_stem().is_some_and(|name| name == "tests") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a source file");
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                for (number, line) in code.lines().enumerate() {
                    let assigns = line
                        .split_once("\"] =")
                        .is_some_and(|(_, rest)| !rest.starts_with('='));
                    let borrows = line.contains("&mut") && line.contains("[\"");
                    let calls = line.trim_end().ends_with("\"]") && {
                        let next = code.lines().nth(number + 1).unwrap_or_default().trim();
                        next.starts_with(".as_object_mut") || next.starts_with(".as_array_mut")
                    };
                    if assigns || borrows || calls {
                        wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "use Tree: {wrong:#?}");
    }
}
