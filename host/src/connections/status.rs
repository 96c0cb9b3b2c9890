//! The status of a CloudConnection: whether its driver is loaded, whether and as which principal the cloud is reached, and
//! how many requests are sent.
//!
//! Each replica of each host that uses the connection writes its own entry in a map, so that no replica overwrites the
//! entry of another. The conditions are derived from all entries, so that every replica derives the same conditions.

use std::time::Duration;

use polity_core::call::{Site, Write};
use polity_core::contract::{Failure, Precondition};
use polity_core::object::Object;
use polity_core::time::{Unix, millis};
use polity_drivers::{Calls, Throttled};
use polity_kube_rules::conditions::since;
use polity_kube_rules::time::{rfc3339, unix_ms_of};
use serde_json::{Map, Value, json};

use crate::display::shortened;

/// A replica that has not renewed its entry for this long is gone.
const GONE_AFTER: Duration = Duration::from_secs(180);
/// The most entries of other replicas that count; the rest is removed. Whoever may write the status can invent them.
const OTHERS: usize = 15;
/// The most characters of a text in the entry of another replica.
const SAID: usize = 512;

/// The state of a connection that a binding of this host names, as this replica sees it.
pub(super) struct Used {
    /// Why the driver is not loaded.
    pub(super) problem: Option<String>,
    /// Whether the cloud is reached, and as which principal; `None` while the driver is not loaded.
    pub(super) reached: Option<Result<Site, Failure>>,
    pub(super) calls: Calls,
    /// The requests of which a server has asked for fewer.
    pub(super) throttled: Option<Throttled>,
}

/// A status to be written.
pub(super) struct Status {
    /// The merge patch.
    pub(super) patch: Value,
    /// Whether more has changed than the times and counts of this replica.
    pub(super) is_news: bool,
    /// How many replicas send requests to the servers now, this one included.
    pub(super) asking: u32,
}

/// The status of a connection, as a replica writes it. `used` is `None` if no binding of its host names the connection;
/// `needs` says why a connection that is being deleted is still needed.
pub(super) fn status(
    object: &Object,
    replica: &str,
    used: Option<&Used>,
    needs: Option<&str>,
    now: Unix,
) -> Status {
    let before = object.at("status").unwrap_or_default();
    let known = before["replicas"].as_object().cloned().unwrap_or_default();
    let own = used.map(|used| entry(used, known.get(replica), now));
    let (mut patch, mut present) = (Map::new(), Map::new());
    for (name, entry) in known.iter().filter(|(name, _)| *name != replica) {
        if is_recent(&entry["seen"], now) && present.len() < OTHERS {
            present.insert(name.clone(), entry.clone())
        } else {
            patch.insert(name.clone(), Value::Null)
        };
    }
    let others = present
        .values()
        .filter(|entry| is_recent(&entry["asked"], now))
        .count();
    let is_news = patch.values().any(Value::is_null)
        || own.as_ref().map(but_for_counts) != known.get(replica).map(but_for_counts);
    patch.insert(replica.to_owned(), own.clone().unwrap_or_default());
    present.extend(own.map(|own| (replica.to_owned(), own)));
    let conditions = conditions(object, &before, &present, needs, now);
    let is_news = is_news || conditions != before["conditions"];
    let mut status = json!({"conditions": conditions, "replicas": patch});
    let site = used.and_then(|used| used.reached.as_ref()?.as_ref().ok());
    let is_news = is_news
        | site.is_some_and(|site| {
            let place = Value::from(site.place.join("/"));
            // Replicas assume one role in sessions of their own.
            let principal = Value::from(site.who());
            let is_other = before["place"] != place || before["principal"] != principal;
            (status["place"], status["principal"]) = (place, principal);
            is_other
        });
    Status {
        patch: status,
        is_news,
        asking: u32::try_from(others + 1).unwrap_or(u32::MAX),
    }
}

/// The entry of a replica. It has no null, because a merge patch would drop the field: the entry must read as it was written.
fn entry(used: &Used, before: Option<&Value>, now: Unix) -> Value {
    let Calls {
        reads,
        changes,
        unanswered,
    } = used.calls;
    let before = before.unwrap_or(&Value::Null);
    let counted = |class: &str| before["calls"][class].as_u64().unwrap_or(0);
    let asks = (reads, changes) != (counted("reads"), counted("changes"));
    let asked = if asks {
        Value::from(rfc3339(now.0))
    } else {
        before["asked"].clone()
    };
    let failure = used.reached.as_ref().and_then(|reached| reached.as_ref().err());
    let throttled =
        |Throttled { class, until }: &Throttled| format!("Throttled until {}: {class}", rfc3339(*until));
    let mut entry = json!({
        "seen": rfc3339(now.0), "asked": asked,
        "problem": used.problem, "failure": failure.map(|failure| &failure.message),
        "throttled": used.throttled.as_ref().map(throttled),
        "calls": {"reads": reads, "changes": changes, "unanswered": unanswered},
    });
    if let Some(fields) = entry.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    entry
}

/// An entry without its times and counts.
fn but_for_counts(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.retain(|name, _| !["seen", "asked", "calls"].contains(&name.as_str()));
    }
    entry
}

fn is_recent(time: &Value, now: Unix) -> bool {
    let then = time.as_str().and_then(unix_ms_of);
    then.is_some_and(|then| now.0.abs_diff(then) < millis(GONE_AFTER))
}

/// The conditions, derived from the entries of all replicas.
fn conditions(
    object: &Object,
    before: &Value,
    entries: &Map<String, Value>,
    needs: Option<&str>,
    now: Unix,
) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let before = before["conditions"].as_array().into_iter().flatten();
        let since = since(before, kind, status);
        let since = since.map_or_else(|| rfc3339(now.0), str::to_owned);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
            "observedGeneration": object.at("metadata.generation").unwrap_or_default(),
        })
    };
    let said = |field: &str| {
        let says = |(name, entry): (&String, &Value)| {
            let said = entry[field].as_str()?;
            Some(match entries.len() {
                1 => shortened(said, SAID),
                _ => shortened(&format!("{name}: {said}"), SAID),
            })
        };
        let all: Vec<String> = entries.iter().filter_map(says).collect();
        (!all.is_empty()).then(|| all.join("; "))
    };
    let mut conditions = if entries.is_empty() {
        ["Loaded", "Reachable", "Throttled"]
            .map(|kind| condition(kind, "Unknown", "NotUsed", "no binding names it"))
            .to_vec()
    } else {
        let problem = said("problem");
        vec![
            match &problem {
                Some(why) => condition("Loaded", "False", "NotLoaded", why),
                None => condition("Loaded", "True", "Loaded", "the driver is loaded"),
            },
            match said("failure") {
                Some(why) => condition("Reachable", "False", "Failed", &why),
                None if problem.is_some() => {
                    condition("Reachable", "Unknown", "NotLoaded", "the driver is not loaded")
                }
                None => condition(
                    "Reachable",
                    "True",
                    "LoggedIn",
                    "the cloud accepts the credentials",
                ),
            },
            match said("throttled") {
                Some(classes) => {
                    let message = format!(
                        "{classes}; a server asks for fewer, so the host sends fewer, and spec.rates can be lowered"
                    );
                    condition("Throttled", "True", "ServerAsksForLess", &message)
                }
                None => condition("Throttled", "False", "AsFastAsAllowed", "no server asks for less"),
            },
        ]
    };
    conditions.extend(needs.map(|needs| condition("InUse", "True", "Needed", needs)));
    conditions.into()
}

/// The write of a status.
pub(super) fn write(object: &Object, patch: Value) -> Write {
    Write::Patch {
        object: object.reference(),
        subresource: Some("status".into()),
        // Several replicas write this status at the same time, so only the uid is a precondition.
        precondition: Some(Precondition {
            uid: object.uid().to_owned(),
            resource_version: None,
        }),
        patch: json!({"status": patch}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Unix = Unix(1_795_435_200_000);

    fn after(minutes: u64) -> Unix {
        Unix(NOON.0 + minutes * 60_000)
    }

    fn used(reads: u64, reached: Result<(), &str>) -> Used {
        let site = |()| Site {
            place: vec!["aws".to_owned(), "eu".to_owned()],
            principal: "me".to_owned(),
        };
        let failure = |message| Failure::new(polity_core::contract::Code::Unavailable, message);
        Used {
            problem: None,
            reached: Some(reached.map(site).map_err(failure)),
            calls: Calls {
                reads,
                ..Calls::default()
            },
            throttled: None,
        }
    }

    /// The connection with the status that a replica has written.
    fn written(object: &Object, status: &Status) -> Object {
        let mut object = object.tree();
        polity_kube_rules::merge_patch::apply(&json!({"status": status.patch}), &mut object);
        Object::new(object)
    }

    fn connection() -> Object {
        Object::new(
            json!({"kind": "CloudConnection", "metadata": {"name": "c", "uid": "u", "generation": 3}}),
        )
    }

    fn condition(object: &Object, kind: &str) -> [String; 3] {
        let object = object.tree();
        let condition = polity_kube_rules::conditions::find(&object, kind)
            .cloned()
            .unwrap_or_default();
        ["status", "message", "lastTransitionTime"]
            .map(|field| condition[field].as_str().unwrap_or("").to_owned())
    }

    #[test]
    fn replicas_write_beside_each_other_and_the_conditions_are_those_of_all() {
        let object = connection();
        let fine = used(5, Ok(()));
        let object = written(&object, &status(&object, "a", Some(&fine), None, NOON));
        assert_eq!(
            condition(&object, "Reachable")[..2],
            ["True", "the cloud accepts the credentials"]
        );
        assert_eq!(object.str_at("status.place").as_deref(), Some("aws/eu"));
        let broken = used(0, Err("no route"));
        let by_b = status(&object, "b", Some(&broken), None, after(1));
        assert!(by_b.is_news);
        let object = written(&object, &by_b);
        let unreachable = condition(&object, "Reachable");
        assert_eq!(unreachable[..2], ["False", "b: no route"]);
        // The first replica derives the same condition.
        let again = status(&object, "a", Some(&fine), None, after(1));
        assert!(!again.is_news, "{}", again.patch);
        // The second replica is gone: its entry is removed.
        let later = status(&object, "a", Some(&fine), None, after(4));
        assert!(later.is_news);
        let object = written(&object, &later);
        assert_eq!(condition(&object, "Reachable")[0], "True");
        assert_eq!(object.at("status.replicas.b"), None);
        assert_ne!(condition(&object, "Reachable")[2], unreachable[2]);
        assert_eq!(
            condition(&object, "Loaded")[2],
            rfc3339(NOON.0),
            "it was loaded all the time"
        );
    }

    #[test]
    fn a_throttled_connection_says_until_when() {
        let throttled = Throttled {
            class: "ec2.eu.amazonaws.com aws/1/eu creates".to_owned(),
            until: after(1).0,
        };
        let slow = Used {
            throttled: Some(throttled),
            ..used(5, Ok(()))
        };
        let object = connection();
        let object = written(&object, &status(&object, "a", Some(&slow), None, NOON));
        let [is_throttled, message, _] = condition(&object, "Throttled");
        assert_eq!(is_throttled, "True");
        let says = format!(
            "Throttled until {}: ec2.eu.amazonaws.com aws/1/eu creates; ",
            rfc3339(after(1).0)
        );
        assert!(message.starts_with(&says), "{message}");
        assert!(
            !status(&object, "a", Some(&slow), None, NOON).is_news,
            "written once"
        );
    }

    #[test]
    fn those_share_the_rates_that_have_asked_of_late() {
        let object = connection();
        let asks = |object: &Object, replica: &str, reads, now| {
            let status = status(object, replica, Some(&used(reads, Ok(()))), None, now);
            (status.asking, written(object, &status))
        };
        let (asking, object) = asks(&object, "a", 5, NOON);
        assert_eq!(asking, 1);
        let (asking, object) = asks(&object, "standby", 0, NOON);
        assert_eq!(asking, 2, "the standby would have half, and asks nothing");
        let (asking, object) = asks(&object, "a", 9, after(2));
        assert_eq!(asking, 1);
        let (_, object) = asks(&object, "standby", 0, after(4));
        let (asking, _) = asks(&object, "standby", 0, after(6));
        assert_eq!(asking, 1, "the first one is gone");
    }

    #[test]
    fn invented_replicas_are_few_and_say_little() {
        let mut object = connection().tree();
        let invented = |number: u64| {
            let then = rfc3339(after(number).0);
            let entry = json!({"seen": then, "asked": then, "failure": "x".repeat(100_000)});
            (format!("invented-{number:05}"), entry)
        };
        object["status"]["replicas"] = Value::Object((0..1_000).map(invented).collect());
        let object = Object::new(object);
        let status = status(&object, "a", Some(&used(5, Ok(()))), None, NOON);
        assert_eq!(status.asking, 4, "the others are of a time to come");
        let object = written(&object, &status);
        let left = object.at("status.replicas").unwrap_or_default();
        assert_eq!(left.as_object().map(Map::len), Some(4));
        let message = &condition(&object, "Reachable")[1];
        assert!(message.len() < 3 * (SAID + 8), "{} bytes", message.len());
    }

    #[test]
    fn a_host_without_a_binding_that_names_it_leaves_the_word_to_the_others() {
        let object = connection();
        let unused = status(&object, "a", None, None, NOON);
        let object = written(&object, &unused);
        assert_eq!(
            condition(&object, "Loaded")[..2],
            ["Unknown", "no binding names it"]
        );
        assert!(
            !status(&object, "a", None, None, after(9)).is_news,
            "once is enough"
        );
        let fine = used(1, Ok(()));
        let object = written(&object, &status(&object, "b", Some(&fine), None, after(9)));
        assert!(!status(&object, "a", None, None, after(9)).is_news);
        assert_eq!(condition(&object, "Loaded")[0], "True");
    }

    #[test]
    fn what_is_deleted_says_what_still_needs_it_and_what_is_not_loaded_why() {
        let object = connection();
        let not_loaded = Used {
            problem: Some("no such file".to_owned()),
            reached: None,
            ..used(0, Ok(()))
        };
        let status = status(&object, "a", Some(&not_loaded), Some("binding m names it"), NOON);
        let object = written(&object, &status);
        assert_eq!(condition(&object, "InUse")[..2], ["True", "binding m names it"]);
        assert_eq!(condition(&object, "Loaded")[..2], ["False", "no such file"]);
        assert_eq!(condition(&object, "Reachable")[0], "Unknown");
    }
}
