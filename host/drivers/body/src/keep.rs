//! Keeps the named parts of a tree, and drops the rest.

use serde_json::Value;

/// Fields in which clouds return secrets, in small letters. They are never kept.
const SECRET: [&str; 7] = [
    "adminpass",
    "admin_pass",
    "user_data",
    "userdata",
    "os-ext-srv-attr:user_data",
    "password",
    "secretaccesskey",
];
/// Names under which vSphere keeps secrets, in elements with a `key` and a `value`. The metadata of cloud-init is not a
/// secret: a controller reads it back.
const SECRET_KEYS: [&str; 2] = ["guestinfo.userdata", "guestinfo.vendordata"];

/// The paths that begin with a text, in the order of their bytes, without that text.
///
/// A field's name may contain dots, so a path can be split into fields in many ways. But all ways through a tree to the same value
/// have the same text. So there is one such list for each value, and to go on by a field is a binary search: the work is linear in
/// the names of the tree's fields, whatever the paths are.
#[derive(Clone, Copy)]
struct Paths<'a> {
    sorted: &'a [&'a [u8]],
    /// How much of each path is behind.
    passed: usize,
}

impl<'a> Paths<'a> {
    /// The paths that go on with this text.
    fn on(self, text: &[u8]) -> Paths<'a> {
        let next = |path: &&'a [u8]| &path[self.passed..(self.passed + text.len()).min(path.len())];
        let from = self.sorted.partition_point(|path| next(path) < text);
        let count = self.sorted[from..].partition_point(|path| next(path) == text);
        Paths {
            sorted: &self.sorted[from..from + count],
            passed: self.passed + text.len(),
        }
    }

    /// Whether a path ends here.
    fn end(self) -> bool {
        self.sorted.first().is_some_and(|path| path.len() == self.passed)
    }
}

/// Keeps the values at these paths. Paths are dotted and go through lists; `*` keeps everything.
pub(crate) fn keep(mut tree: Value, keep: &[impl AsRef<str>]) -> Value {
    let mut sorted: Vec<&[u8]> = keep.iter().map(|path| path.as_ref().as_bytes()).collect();
    sorted.sort_unstable();
    if sorted.contains(&b"*".as_slice()) {
        without_secrets(&mut tree);
    } else {
        narrow(
            &mut tree,
            Paths {
                sorted: &sorted,
                passed: 0,
            },
        );
    }
    tree
}

fn narrow(value: &mut Value, paths: Paths<'_>) {
    match value {
        Value::Object(fields) => {
            if fields.get("key").is_some_and(is_secret_key) {
                fields.remove("value");
            }
            fields.retain(|name, value| {
                let here = paths.on(name.as_bytes());
                let deeper = here.on(b".");
                if is_secret(name) || here.sorted.is_empty() {
                    return false;
                }
                if here.end() {
                    without_secrets(value);
                    return true;
                }
                if deeper.sorted.is_empty() {
                    return false;
                }
                narrow(value, deeper);
                true
            });
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| narrow(element, paths)),
        other => *other = Value::Null,
    }
}

fn without_secrets(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("key").is_some_and(is_secret_key) {
                fields.remove("value");
            }
            fields.retain(|name, _| !is_secret(name));
            fields.values_mut().for_each(without_secrets);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_secrets),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Whether the `key` of an element names a secret. It is a text in JSON, and a list of one element in XML.
fn is_secret_key(key: &Value) -> bool {
    let text = |key: &Value| key.as_str().map(str::to_ascii_lowercase);
    let key = text(key).or_else(|| text(key.get(0)?.get("$text")?));
    key.is_some_and(|key| SECRET_KEYS.iter().any(|secret| key.starts_with(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_named_is_kept_through_lists() {
        let tree = json!({"servers": [{"id": 1, "x": 2, "metadata": {"polity.dev/owner": "u", "other": 3}}, {"id": 2}], "next": "n"});
        assert_eq!(
            keep(tree.clone(), &["servers.id", "servers.metadata.polity.dev/owner"]),
            json!({"servers": [{"id": 1, "metadata": {"polity.dev/owner": "u"}}, {"id": 2}]})
        );
        assert_eq!(
            keep(tree.clone(), &["servers.metadata"])["servers"][0],
            json!({"metadata": {"polity.dev/owner": "u", "other": 3}})
        );
        assert_eq!(keep(tree.clone(), &[] as &[&str]), json!({}));
        assert_eq!(keep(tree.clone(), &["*"]), tree);
        assert_eq!(keep(json!("text"), &["a"]), Value::Null);
    }

    #[test]
    fn a_path_is_split_into_fields_in_any_way_that_fits() {
        let tree = json!({"a": {"b": {"c": 1}, "b.c": 2}, "a.b": {"c": 3, "x": 4}, "a.b.c": 5, "": {"": 6}});
        assert_eq!(
            keep(tree.clone(), &["a.b.c"]),
            json!({"a": {"b": {"c": 1}, "b.c": 2}, "a.b": {"c": 3}, "a.b.c": 5})
        );
        assert_eq!(keep(tree.clone(), &["."]), json!({"": {"": 6}}));
        assert_eq!(keep(tree.clone(), &["", "a"])["a"], tree["a"]);
        assert_eq!(
            keep(json!({"a.b": 1, "a": 2}), &["a.b"]),
            json!({"a.b": 1, "a": null})
        );
        assert_eq!(
            keep(json!({"a": [[{"b": 1}], 2]}), &["a.b"]),
            json!({"a": [[{"b": 1}], null]})
        );
    }

    /// So many paths and fields took hours, on a thread of the runtime.
    #[test]
    fn the_work_is_not_paths_times_fields() {
        let paths: Vec<String> = (0..60_000)
            .map(|n| format!("a.field-{n}.deeper.and.deeper"))
            .collect();
        let fields = (0..100_000).map(|n| (format!("field-{n}"), json!({"deeper": {"and": 1, "or": 2}})));
        let tree = json!({"a": fields.collect::<serde_json::Map<_, _>>()});
        let began = std::time::Instant::now();
        let kept = keep(tree, &paths);
        assert_eq!(kept["a"].as_object().map(serde_json::Map::len), Some(60_000));
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn secrets_are_never_kept() {
        let tree = json!({"server": {"id": 1, "adminPass": "s", "OS-EXT-SRV-ATTR:user_data": "s"}});
        for paths in [
            vec!["*"],
            vec!["server"],
            vec![
                "server.id",
                "server.adminPass",
                "server.OS-EXT-SRV-ATTR:user_data",
            ],
        ] {
            assert_eq!(keep(tree.clone(), &paths), json!({"server": {"id": 1}}));
        }
        let extra = json!({"extraConfig": [
            {"key": [{"$text": "guestinfo.userdata"}], "value": [{"$text": "s"}]},
            {"key": [{"$text": "polity.owner"}], "value": [{"$text": "u"}]},
        ]});
        let kept = keep(extra, &["*"]).to_string();
        assert!(kept.contains("\"u\"") && !kept.contains("\"s\""), "{kept}");
    }

    #[test]
    fn the_metadata_of_a_guest_is_no_secret_and_its_user_data_is() {
        for (key, is_kept) in [
            ("guestinfo.metadata", true),
            ("guestinfo.metadata.encoding", true),
            ("guestinfo.userdata", false),
            ("GuestInfo.UserData", false),
            ("guestinfo.userdata.encoding", false),
            ("guestinfo.vendordata", false),
        ] {
            let extra = json!({"e": [{"key": [{"$text": key}], "value": [{"$text": "v"}]}]});
            for paths in [vec!["*"], vec!["e.key", "e.value"]] {
                let kept = keep(extra.clone(), &paths);
                assert_eq!(kept["e"][0].get("value").is_some(), is_kept, "{key} {paths:?}");
            }
        }
    }

    #[test]
    fn a_secret_is_not_kept_by_naming_its_value() {
        let extra = json!({"e": [{"key": "guestinfo.userdata", "value": "s"}]});
        for paths in [vec!["e.value"], vec!["e.key", "e.value"]] {
            assert!(
                !keep(extra.clone(), &paths).to_string().contains("\"s\""),
                "{paths:?}"
            );
        }
    }
}
