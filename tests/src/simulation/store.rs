//! An API server's objects in memory, with what a controller can rely on: versions, generations, the status
//! subresource, merge patches, preconditions, finalizers and deletion.

use std::collections::BTreeMap;

use polity_core::call::{LeaseRead, LeaseWrite};
use polity_core::contract::{Answer, Code, Failure, ListQuery, Precondition};
use polity_core::object::{Object, ResourceVersion};
use polity_kube_rules::labels::LabelSelector;
use polity_kube_rules::merge_patch;
use serde_json::{Value, json};

/// Kind, namespace, name.
pub type Place = (String, String, String);

/// A change of an object, in the order of versions.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// Kind, namespace and name.
    pub place: Place,
    /// Who wrote: the identity of a host, or `user`.
    pub author: String,
    /// None if it was created.
    pub before: Option<Object>,
    /// None if it is gone.
    pub after: Option<Object>,
    /// The object as a watch shows it; of one that is gone, with the version of its end.
    pub shown: Object,
}

/// What an API server stores.
#[derive(Debug, Default)]
pub struct Store {
    objects: BTreeMap<Place, Object>,
    version: u64,
    uids: u64,
    lease: Option<LeaseRead>,
    /// Whether objects are looked at before they are stored, and if so, whether the schema of their status is known.
    checks: Option<bool>,
    log: Vec<Change>,
}

impl Store {
    /// A store that refuses objects that no API server stores; with `Some(true)`, those that no schema with conditions
    /// and pending entries lets through as well.
    pub fn checking(checks: Option<bool>) -> Self {
        Store {
            checks,
            ..Store::default()
        }
    }

    /// The version of the last write.
    pub fn version(&self) -> ResourceVersion {
        ResourceVersion(self.version)
    }

    /// Every change so far.
    pub fn log(&self) -> &[Change] {
        &self.log
    }

    /// The lease's holder; empty if nobody holds it.
    pub fn holder(&self) -> &str {
        self.lease.as_ref().map_or("", |lease| &lease.holder)
    }

    /// One object.
    pub fn get(&self, place: &Place) -> Option<&Object> {
        self.objects.get(place)
    }

    /// The object of this uid.
    pub fn by_uid(&self, uid: &str) -> Option<&Object> {
        self.objects.values().find(|object| object.uid() == uid)
    }

    /// All objects, by kind, namespace and name.
    pub fn all(&self) -> impl Iterator<Item = (&Place, &Object)> {
        self.objects.iter()
    }

    /// Creates an object.
    pub fn create(&mut self, author: &str, mut value: Value) -> Result<Object, Failure> {
        if let Some(schema) = self.checks {
            wellformed(&value, schema)?;
        }
        let place = place(&value);
        if self.objects.contains_key(&place) {
            return Err(Failure::new(
                Code::AlreadyExists,
                format!("{place:?} exists already"),
            ));
        }
        self.uids += 1;
        if let Some(metadata) = value["metadata"].as_object_mut() {
            // Nothing begins by ending: `rest.BeforeCreate` of kube-apiserver drops these.
            metadata.remove("deletionTimestamp");
            metadata.remove("deletionGracePeriodSeconds");
        }
        value["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        value["metadata"]["generation"] = json!(1);
        Ok(self.put(author, place, value))
    }

    /// Patches the object, or its status, if it is still the one that this says.
    pub fn patch(
        &mut self,
        author: &str,
        place: &Place,
        subresource: Option<&str>,
        held: Option<&Precondition>,
        patch: &Value,
    ) -> Result<Object, Failure> {
        let current = self.objects.get(place).ok_or_else(|| gone(place))?.clone();
        held.map_or(Ok(()), |held| check(&current, held))?;
        let mut patch = patch.clone();
        if let Some(Value::Object(metadata)) = patch.get_mut("metadata") {
            metadata.remove("uid");
            metadata.remove("resourceVersion");
        }
        let standing = current.tree();
        let mut value = standing.clone();
        match (subresource, patch.as_object_mut()) {
            (Some(part), Some(fields)) => fields.retain(|name, _| name == part),
            (None, Some(fields)) => {
                fields.remove("status");
            }
            _ => {}
        }
        merge(&mut value, &patch);
        if value == standing {
            return Ok(current);
        }
        if let Some(schema) = self.checks {
            wellformed(&value, schema)?;
            unmoved(&standing, &value)?;
        }
        let finalizers = |v: &Value| v["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        if current.is_deleting() && finalizers(&value) > finalizers(&standing) {
            let message = "no finalizer can be added while the object is being deleted";
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        if value["spec"] != standing["spec"] {
            value["metadata"]["generation"] = json!(current.generation().unwrap_or(0) + 1);
        }
        if current.is_deleting() && finalizers(&value) == 0 {
            return Ok(self.end(author, place, value));
        }
        Ok(self.put(author, place.clone(), value))
    }

    /// Deletes an object, if it is still the one that this says.
    pub fn delete_if(&mut self, author: &str, place: &Place, held: &Precondition, unix: u64) -> Answer {
        let current = self.objects.get(place).ok_or_else(|| gone(place))?;
        check(current, held)?;
        self.delete(author, place, unix)?;
        let left = self.objects.get(place);
        Ok(left.map_or(Value::Null, Object::tree))
    }

    /// The objects as they stood at an earlier version, by kind, namespace and name.
    pub fn as_of(&self, version: u64) -> Vec<(Place, Object)> {
        let then = self.log.iter().take_while(|change| change.version <= version);
        let last: BTreeMap<&Place, &Change> = then.map(|change| (&change.place, change)).collect();
        let there = last
            .into_iter()
            .filter_map(|(at, change)| Some((at, change.after.as_ref()?)));
        there.map(|(at, object)| (at.clone(), object.clone())).collect()
    }

    /// Deletes an object, as soon as it has no finalizer.
    pub fn delete(&mut self, author: &str, place: &Place, unix: u64) -> Result<(), Failure> {
        let current = self.objects.get(place).ok_or_else(|| gone(place))?.clone();
        if current.is_deleting() {
            return Ok(());
        }
        let mut value = current.tree();
        let held = value["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        value["metadata"]["deletionTimestamp"] = json!(polity_kube_rules::time::rfc3339(unix));
        value["metadata"]["generation"] = json!(current.generation().unwrap_or(0) + 1);
        match held {
            0 => self.end(author, place, value),
            _ => self.put(author, place.clone(), value),
        };
        Ok(())
    }

    /// Reads the lease, or writes it on the version it was read at.
    pub fn lease(&mut self, write: Option<&LeaseWrite>) -> Result<Option<LeaseRead>, Failure> {
        let Some(write) = write else {
            return Ok(self.lease.clone());
        };
        if self.lease.as_ref().map(|lease| &lease.version) != write.version.as_ref() {
            return Err(Failure::new(Code::Aborted, "the lease has another version"));
        }
        self.version += 1;
        self.lease = Some(LeaseRead {
            holder: write.holder.clone(),
            duration: write.duration,
            version: self.version.to_string(),
            transitions: write.transitions,
        });
        Ok(self.lease.clone())
    }

    fn put(&mut self, author: &str, place: Place, value: Value) -> Object {
        let object = self.versioned(value);
        let before = self.objects.insert(place.clone(), object.clone());
        let (after, shown) = (Some(object.clone()), object.clone());
        self.note(author, place, before, after, shown);
        object
    }

    fn end(&mut self, author: &str, place: &Place, value: Value) -> Object {
        let object = self.versioned(value);
        let before = self.objects.remove(place);
        self.note(author, place.clone(), before, None, object.clone());
        object
    }

    fn versioned(&mut self, mut value: Value) -> Object {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Object::new(value)
    }

    fn note(
        &mut self,
        author: &str,
        place: Place,
        before: Option<Object>,
        after: Option<Object>,
        shown: Object,
    ) {
        self.log.push(Change {
            version: self.version,
            place,
            author: author.to_owned(),
            before,
            after,
            shown,
        });
    }
}

fn gone(place: &Place) -> Failure {
    Failure::new(
        Code::NotFound,
        format!("{} {}/{} not found", place.0, place.1, place.2),
    )
}

fn check(current: &Object, held: &Precondition) -> Result<(), Failure> {
    if !held.uid.is_empty() && held.uid != current.uid() {
        return Err(Failure::new(Code::Aborted, "the object has another uid"));
    }
    let version = held.resource_version.as_ref();
    if version.is_some_and(|version| *version != current.version().0.to_string()) {
        return Err(Failure::new(Code::Aborted, "the object has another version"));
    }
    Ok(())
}

/// Whether this is an object that an API server would store.
fn wellformed(value: &Value, schema: bool) -> Result<(), Failure> {
    let metadata = &value["metadata"];
    let all = |list: &Value, fits: fn(&Value) -> bool| {
        list.is_null() || list.as_array().is_some_and(|items| items.iter().all(fits))
    };
    let texts = |map: &Value| {
        map.is_null()
            || map
                .as_object()
                .is_some_and(|map| map.values().all(Value::is_string))
    };
    let named = |part: &Value| part.as_str().is_some_and(|name| !name.is_empty());
    let typed = |condition: &Value| condition["type"].is_string();
    let entry = |entry: &Value| entry.is_object();
    let status = &value["status"];
    let wrong = if !metadata.is_object() || !named(&metadata["name"]) || !named(&value["kind"]) {
        "metadata"
    } else if !all(&metadata["finalizers"], Value::is_string) {
        "metadata.finalizers"
    } else if !all(&metadata["ownerReferences"], |owner| owner["uid"].is_string()) {
        "metadata.ownerReferences"
    } else if !texts(&metadata["labels"]) || !texts(&metadata["annotations"]) {
        "metadata.labels"
    } else if !(status.is_null() || status.is_object()) {
        "status"
    } else if schema && !all(&status["conditions"], typed) {
        "status.conditions"
    } else if schema && !all(&status["pending"], entry) {
        "status.pending"
    } else {
        return Ok(());
    };
    Err(Failure::new(
        Code::InvalidArgument,
        format!("{wrong} is not what it must be"),
    ))
}

/// Whether nothing changed that nobody may change.
fn unmoved(before: &Value, after: &Value) -> Result<(), Failure> {
    let moved = |field: &&str| before["metadata"][*field] != after["metadata"][*field];
    let fixed = ["name", "namespace", "deletionTimestamp", "generation"];
    match fixed.iter().find(|field| moved(field)) {
        Some(field) => Err(Failure::new(
            Code::InvalidArgument,
            format!("metadata.{field} is immutable"),
        )),
        None if before["kind"] != after["kind"] || before["apiVersion"] != after["apiVersion"] => {
            Err(Failure::new(Code::InvalidArgument, "kind is immutable"))
        }
        None => Ok(()),
    }
}

/// JSON merge patch, RFC 7386.
pub fn merge(into: &mut Value, patch: &Value) {
    merge_patch::apply(patch, into);
}

/// Whether a list shows an object.
pub fn selects(query: &ListQuery, object: &Object) -> bool {
    let in_namespace = query.namespace.is_none() || query.namespace.as_deref() == object.namespace();
    let by_label = query.label_selector.as_deref().is_none_or(|text| {
        LabelSelector::parse(text).is_some_and(|selector| selector.matches(&object.tree()))
    });
    let by_field = query.field_selector.as_deref().is_none_or(|text| {
        text.split_once('=')
            .is_some_and(|(field, value)| object.str_at(field).is_some_and(|found| found == value))
    });
    object.kind() == query.kind && in_namespace && by_label && by_field
}

/// Where an object stands.
pub fn place(value: &Value) -> Place {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let metadata = &value["metadata"];
    (
        text(&value["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    )
}
