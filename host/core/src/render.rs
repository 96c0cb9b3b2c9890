//! Renders answers about objects of the cluster as text: what the grant shows, and of this what the question asks
//! for.

use std::borrow::Cow;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::binding::KindGrant;
use crate::contract::{Code, Failure, Json, ListQuery, ObjectQuery};
use crate::object::{self, Object};
use crate::{grants, projection};

/// The most objects in a list if the policy sets no limit.
const LIST_LIMIT: u64 = 10_000;

/// A list to render. Rendering is pure, so a thread of the host can render a long list while other passes go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Render {
    /// The objects that the query selects, ordered by namespace and name.
    pub objects: Vec<Object>,
    /// The primary of the pass that asks. The grant may require a relation to it.
    pub primary: Option<Object>,
    /// The grant that allows the question.
    pub grant: Arc<KindGrant>,
    /// The question.
    pub query: ListQuery,
    /// The most bytes of the answer.
    pub limit: u64,
}

/// A rendered list.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// A JSON array, or the failure that the list is too long.
    pub answer: Result<Json, Failure>,
    /// The number of objects that the grant reaches.
    pub count: u64,
}

impl Render {
    /// Renders the list.
    pub fn run(&self) -> Rendered {
        let related: Vec<&Object> = self.related().collect();
        let count = related.len() as u64;
        let limit = limit(&self.query);
        if count > limit {
            let kind = &self.query.kind.kind;
            let message = format!("the list has {count} {kind} objects; the limit is {limit}");
            let answer = Err(Failure::new(Code::ResourceExhausted, message));
            return Rendered { answer, count };
        }
        let answer = self.text(&related);
        Rendered { answer, count }
    }

    fn related(&self) -> impl Iterator<Item = &Object> {
        let related =
            |object: &&Object| grants::check_relation(&self.grant, self.primary.as_ref(), object).is_ok();
        self.objects.iter().filter(related)
    }

    /// Renders objects until the answer is too large.
    fn text(&self, related: &[&Object]) -> Result<Json, Failure> {
        let mut text = String::from("[");
        for (index, object) in related.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&project(&self.grant, object, &self.query.projection));
            if text.len() as u64 > self.limit {
                return Err(too_large(self.limit));
            }
        }
        text.push(']');
        match text.len() as u64 > self.limit {
            true => Err(too_large(self.limit)),
            false => Ok(text.into()),
        }
    }
}

/// The most objects in a list.
pub(crate) fn limit(query: &ListQuery) -> u64 {
    match query.limit {
        0 => LIST_LIMIT,
        limit => u64::from(limit),
    }
}

/// The failure for an answer that does not fit into the journal of its pass.
pub(crate) fn too_large(limit: u64) -> Failure {
    let message = format!("the answer is larger than {limit} bytes, the room that is left for it");
    Failure::new(Code::ResourceExhausted, message)
}

/// The answer about one object, through the grant that allows the question.
pub(crate) fn answer_of_object(
    grant: &KindGrant,
    primary: Option<&Object>,
    query: &ObjectQuery,
    found: Option<&Object>,
) -> Result<Json, Failure> {
    let Some(found) = found else {
        let object = &query.object;
        let message = format!("{} {} not found", object.kind.kind, object.name);
        return Err(Failure::new(Code::NotFound, message));
    };
    grants::check_relation(grant, primary, found)?;
    Ok(shown(grant, found, &query.projection))
}

/// The text of an object in an answer: what the grant shows, and of this the wanted paths.
fn shown(grant: &KindGrant, object: &Object, wanted: &[String]) -> Json {
    match project(grant, object, wanted) {
        // All answers share this text as long as the object is kept.
        Cow::Borrowed(_) => object.json().clone(),
        Cow::Owned(text) => text.into(),
    }
}

fn project<'a>(grant: &KindGrant, object: &'a Object, wanted: &[String]) -> Cow<'a, str> {
    let wanted = wanted.iter().map(String::as_str);
    let shown = grants::shown(grant, object.json());
    match wanted.len() {
        0 => shown,
        _ => Cow::Owned(projection::project(&shown, wanted)),
    }
}

/// The digest of the part of an object that a grant and a projection show, without its version. The digest of an
/// answer is the sum of the digests of its items. So a changed item changes it without rendering the other items
/// again.
pub(crate) fn digest_of_item(key: &[u8; 16], grant: &KindGrant, object: &Object, wanted: &[String]) -> u128 {
    let mut hash = Sha256::new_with_prefix(key);
    let shown = project(grant, object, wanted);
    let content = match &shown {
        Cow::Borrowed(_) => object.content(),
        Cow::Owned(part) => object::content(part),
    };
    content.iter().for_each(|piece| hash.update(piece));
    if let Some(relation) = &grant.relation {
        // The relation may change while the shown part stays the same.
        hash.update(object.text_at(&relation.theirs).unwrap_or_default());
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    u128::from_le_bytes(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;
    use serde_json::{Value, json};

    fn node(name: &str, size: usize) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": "7"},
            "spec": {"size": "x".repeat(size)}, "status": {"of": "m"}}),
        )
    }

    fn render(objects: Vec<Object>, change: impl FnOnce(&mut Render)) -> Rendered {
        let kind = Kind {
            api_version: "v1".into(),
            kind: "Node".into(),
        };
        let grant = KindGrant {
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            namespaces: Some(vec!["*".into()]),
            name: None,
            relation: None,
            fields: None,
            subresources: None,
            metadata: None,
        };
        let query = ListQuery::all(kind);
        let mut render = Render {
            objects,
            primary: None,
            grant: grant.into(),
            query,
            limit: 1_000,
        };
        change(&mut render);
        render.run()
    }

    fn code(rendered: &Rendered) -> Option<Code> {
        rendered.answer.as_ref().err().map(|failure| failure.code)
    }

    #[test]
    fn a_list_is_an_array_of_what_is_shown() {
        let rendered = render(vec![node("a", 1), node("b", 2)], |render| {
            render.query.projection = vec!["status".into()];
        });
        let answer: Value = serde_json::from_str(&rendered.answer.expect("an answer")).expect("JSON");
        let item = |name| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": "7"},
            "status": {"of": "m"}})
        };
        assert_eq!(answer, json!([item("a"), item("b")]));
        assert_eq!(rendered.count, 2);
    }

    #[test]
    fn more_bytes_than_there_is_room_for_are_not_answered() {
        let just = render(vec![node("a", 1)], |_| {})
            .answer
            .expect("an answer")
            .len() as u64;
        assert_eq!(
            code(&render(vec![node("a", 1)], |render| render.limit = just)),
            None
        );
        let less = render(vec![node("a", 1)], |render| render.limit = just - 1);
        assert_eq!(code(&less), Some(Code::ResourceExhausted));
    }

    #[test]
    fn more_objects_than_were_asked_for_are_counted_and_not_answered() {
        let rendered = render(vec![node("a", 1), node("b", 1)], |render| render.query.limit = 1);
        assert_eq!(
            (code(&rendered), rendered.count),
            (Some(Code::ResourceExhausted), 2)
        );
    }

    #[test]
    fn the_digest_of_an_item_is_of_what_is_shown_and_of_no_version() {
        let digest = |object: &Object, wanted: &[String]| {
            let grant = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node"})).expect("a grant");
            digest_of_item(&[0; 16], &grant, object, wanted)
        };
        let mut other = node("a", 1).tree();
        other["metadata"]["resourceVersion"] = json!("8");
        let later = Object::new(other.clone());
        assert_eq!(digest(&node("a", 1), &[]), digest(&later, &[]));
        other["spec"] = json!({});
        let hidden = Object::new(other);
        assert_ne!(digest(&node("a", 1), &[]), digest(&hidden, &[]));
        let status = ["status".to_owned()];
        assert_eq!(digest(&node("a", 1), &status), digest(&hidden, &status));
        assert_ne!(digest(&node("a", 1), &status), digest(&node("b", 1), &status));
    }
}
