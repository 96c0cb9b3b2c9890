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

/// The rest of each path below the present value. `None` is a path that ends here: everything below is kept.
type Paths<'a> = Vec<Option<&'a str>>;

/// Keeps the values at these paths. Paths are dotted and go through lists; `*` keeps everything.
pub(crate) fn keep(mut tree: Value, keep: &[impl AsRef<str>]) -> Value {
    let paths: Paths<'_> = keep
        .iter()
        .map(|path| Some(path.as_ref()).filter(|path| *path != "*"))
        .collect();
    narrow(&mut tree, &paths);
    tree
}

fn narrow(value: &mut Value, paths: &Paths<'_>) {
    if paths.contains(&None) {
        return without_secrets(value);
    }
    match value {
        Value::Object(fields) => {
            if fields.get("key").is_some_and(is_secret_key) {
                fields.remove("value");
            }
            fields.retain(|name, value| {
                let deeper: Paths<'_> = paths.iter().filter_map(|path| beyond((*path)?, name)).collect();
                let is_kept = !deeper.is_empty() && !is_secret(name);
                if is_kept {
                    narrow(value, &deeper);
                }
                is_kept
            });
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| narrow(element, paths)),
        other => *other = Value::Null,
    }
}

/// The rest of a path after this field; `None` if the path does not lead through the field. A field's name may contain dots.
fn beyond<'a>(path: &'a str, field: &str) -> Option<Option<&'a str>> {
    let rest = path.strip_prefix(field)?;
    match rest.is_empty() {
        true => Some(None),
        false => rest.strip_prefix('.').map(Some),
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
    SECRET.contains(&name.to_ascii_lowercase().as_str())
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
