//! Renders answers about objects of the cluster as text: what the grant shows, and of this what the question asks
//! for.

use std::borrow::Cow;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::binding::KindGrant;
use crate::contract::{Code, Failure, Json, ListQuery, ObjectQuery, Question, Role};
use crate::grants::{self, Reach};
use crate::object::{self, Object};
use crate::projection;
use crate::selection::{self, LOOK, Selection};

/// The most objects in a list if the policy sets no limit.
const LIST_LIMIT: u64 = 10_000;

/// A question, and the role that asked it. It is shared: a pass has hundreds, and each is in an index, too.
pub type RoleQuestion = Arc<(Role, Question)>;

/// An answer to render: a question about objects, and the objects as they were when it was asked. Naming them costs no
/// copy of their text.
#[derive(Clone, Debug, PartialEq)]
pub struct Render {
    /// The objects that the answer may be about: all of a scope or a namespace, ordered by namespace and name; for a
    /// question about one object, that object, if it exists.
    objects: Arc<[Object]>,
    /// The primary of the pass that asks. The grant may require a relation to it.
    primary: Option<Object>,
    /// The grant that allows the question.
    grant: Arc<KindGrant>,
    asked: RoleQuestion,
    /// The selectors of the question.
    selection: Selection,
}

/// A rendered answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderOutput {
    /// The answer: for a list a JSON array, or the failure that it is too long.
    pub answer: Result<Json, Failure>,
    /// The number of objects in a list that the grant reaches.
    pub count: u64,
    /// The bytes of text that were read.
    pub read: u64,
}

impl Render {
    /// An answer to a question about one object or a list.
    pub fn new(
        objects: impl Into<Arc<[Object]>>,
        primary: Option<Object>,
        grant: Arc<KindGrant>,
        (asked, selection): (RoleQuestion, Selection),
    ) -> Self {
        Render {
            objects: objects.into(),
            primary,
            grant,
            asked,
            selection,
        }
    }

    /// The question that is answered.
    pub(crate) fn asked(&self) -> &RoleQuestion {
        &self.asked
    }

    /// The bytes of text of the objects.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.objects.iter().map(|object| object.json().len() as u64);
        bytes.fold(0, u64::saturating_add)
    }

    /// Renders the answer, which may have so many bytes.
    pub fn run(&self, limit: u64) -> RenderOutput {
        match &self.asked.1 {
            Question::Objects(query) => self.list(query, limit),
            Question::Object(query) => {
                let found = self.objects.first();
                let answer = answer_of_object(&self.grant, self.primary.as_ref(), query, found);
                let answer = answer.and_then(|json| fitting(json, limit));
                let looked = found.map_or(0, |found| self.looks_at(found).saturating_add(self.copies(found)));
                RenderOutput {
                    answer,
                    count: 0,
                    read: looked.saturating_add(self.looks_at_primary()),
                }
            }
            _ => RenderOutput {
                answer: Err(Failure::new(Code::Internal, "no watch answers this")),
                count: 0,
                read: 0,
            },
        }
    }

    fn list(&self, query: &ListQuery, room: u64) -> RenderOutput {
        let reach = Reach::of(&self.grant, self.primary.as_ref());
        let is_asked = |object: &&Object| {
            let is_selected = self
                .selection
                .selects(query, object, || selection::labels(object));
            is_selected && reach.includes(object)
        };
        let found: Vec<&Object> = self.objects.iter().filter(is_asked).collect();
        let looked = self.objects.iter().map(|object| self.looks_at(object));
        let looked = looked.fold(self.looks_at_primary(), u64::saturating_add);
        let count = found.len() as u64;
        let limit = limit(query);
        if count > limit {
            let kind = &query.kind.kind;
            let message = format!("the list has {count} {kind} objects; the limit is {limit}");
            let answer = Err(Failure::new(Code::ResourceExhausted, message));
            return RenderOutput {
                answer,
                count,
                read: looked,
            };
        }
        let (answer, written) = self.text(&found, query, room);
        RenderOutput {
            answer,
            count,
            read: looked.saturating_add(written),
        }
    }

    /// Renders objects until the answer is too large. Returns the bytes of the objects too.
    fn text(&self, found: &[&Object], query: &ListQuery, room: u64) -> (Result<Json, Failure>, u64) {
        let mut text = String::from("[");
        let mut read = 0;
        for (index, object) in found.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&project(&self.grant, object, &query.projection));
            read += object.json().len() as u64;
            if text.len() as u64 > room {
                return (Err(too_large(room)), read);
            }
        }
        text.push(']');
        (fitting(text.into(), room), read)
    }

    /// The bytes of an object that are read to find out whether the answer is about it.
    fn looks_at(&self, object: &Object) -> u64 {
        let bytes = |is_read: bool| if is_read { object.json().len() as u64 } else { 0 };
        LOOK.saturating_add(self.selection.compares(object))
            .saturating_add(bytes(self.selection.reads_fields()))
            .saturating_add(bytes(self.grant.relation.is_some()))
    }

    fn looks_at_primary(&self) -> u64 {
        let related = self.grant.relation.as_ref().and(self.primary.as_ref());
        related.map_or(0, |primary| primary.json().len() as u64)
    }

    /// The bytes of an object that are read to render it. Answers share the text of a whole object.
    fn copies(&self, object: &Object) -> u64 {
        let is_shared = match &self.asked.1 {
            Question::Object(query) => self.grant.fields.is_none() && query.projection.is_empty(),
            _ => false,
        };
        if is_shared { 0 } else { object.json().len() as u64 }
    }
}

/// The most objects in a list.
pub(crate) fn limit(query: &ListQuery) -> u64 {
    match query.limit {
        0 => LIST_LIMIT,
        limit => u64::from(limit),
    }
}

/// An answer that may have so many bytes.
pub(crate) fn fitting(answer: Json, limit: u64) -> Result<Json, Failure> {
    if answer.len() as u64 > limit {
        return Err(too_large(limit));
    }
    Ok(answer)
}

/// The failure for an answer that does not fit into the journal of its pass.
pub(crate) fn too_large(limit: u64) -> Failure {
    let message = format!("the answer is larger than {limit} bytes, the room that is left for it");
    Failure::new(Code::ResourceExhausted, message)
}

/// The answer about one object, through the grant that allows the question.
fn answer_of_object(
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
    use serde_json::{Value, json};

    fn node(name: &str, size: usize) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": "7"},
            "spec": {"size": "x".repeat(size)}, "status": {"of": "m"}}),
        )
    }

    fn grant(relation: Value) -> Arc<KindGrant> {
        let grant = json!({"apiVersion": "v1", "kind": "Node", "namespaces": ["*"], "relation": relation});
        Arc::new(serde_json::from_value(grant).expect("a grant"))
    }

    fn nodes() -> ListQuery {
        ListQuery::all(grant(Value::Null).kind())
    }

    fn asked(query: ListQuery) -> (RoleQuestion, Selection) {
        let question = Question::Objects(query);
        let selection = Selection::of(&question).expect("selectors");
        ((Role::Lifecycle, question).into(), selection)
    }

    fn render(objects: Vec<Object>, query: ListQuery, limit: u64) -> RenderOutput {
        Render::new(objects, None, grant(Value::Null), asked(query)).run(limit)
    }

    fn code(rendered: &RenderOutput) -> Option<Code> {
        rendered.answer.as_ref().err().map(|failure| failure.code)
    }

    #[test]
    fn a_list_is_an_array_of_what_is_shown() {
        let of_status = ListQuery {
            projection: vec!["status".into()],
            ..nodes()
        };
        let rendered = render(vec![node("a", 1), node("b", 2)], of_status, 1_000);
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
        let one = |limit| render(vec![node("a", 1)], nodes(), limit);
        let just = one(1_000).answer.expect("an answer").len() as u64;
        assert_eq!(code(&one(just)), None);
        assert_eq!(code(&one(just - 1)), Some(Code::ResourceExhausted));
    }

    #[test]
    fn more_objects_than_were_asked_for_are_counted_and_not_answered() {
        let one = ListQuery { limit: 1, ..nodes() };
        let rendered = render(vec![node("a", 1), node("b", 1)], one, 1_000);
        assert_eq!(
            (code(&rendered), rendered.count),
            (Some(Code::ResourceExhausted), 2)
        );
    }

    #[test]
    fn only_what_the_query_selects_and_the_grant_reaches_is_in_a_list() {
        let labelled = |name: &str, labels: Value| {
            Object::new(json!({"apiVersion": "v1", "kind": "Node", "spec": {"of": name},
                "metadata": {"name": name, "labels": labels}}))
        };
        let objects = vec![
            labelled("ours", json!({"a": "b"})),
            labelled("theirs", json!({"a": "b"})),
            labelled("ours", json!({"a": "c"})),
        ];
        let query = ListQuery {
            label_selector: Some("a=b".into()),
            ..nodes()
        };
        let primary = Object::new(json!({"status": {"node": "ours"}}));
        let relation = grant(json!({"theirs": "spec.of", "ours": "status.node"}));
        let rendered = Render::new(objects, Some(primary), relation, asked(query)).run(1_000);
        let answer: Vec<Value> = serde_json::from_str(&rendered.answer.expect("an answer")).expect("a list");
        assert_eq!((answer.len(), rendered.count), (1, 1));
        assert_eq!(
            answer[0]["metadata"],
            json!({"name": "ours", "labels": {"a": "b"}})
        );
    }

    #[test]
    fn what_rendering_reads_is_counted() {
        let (one, other) = (node("a", 10), node("b", 1_000));
        let bytes = |object: &Object| object.json().len() as u64;
        let (both, primary) = (vec![one.clone(), other.clone()], node("m", 77));
        let related = grant(json!({"theirs": "spec.size", "ours": "spec.size"}));
        let list = Render::new(both.clone(), None, grant(Value::Null), asked(nodes()));
        let all = 2 * LOOK + bytes(&one) + bytes(&other);
        assert_eq!(list.run(9_000).read, all);
        assert_eq!(list.bytes(), bytes(&one) + bytes(&other));
        // The second is not rendered any more.
        assert_eq!(list.run(10).read, all - bytes(&other));
        let list = Render::new(both, Some(primary.clone()), related, asked(nodes()));
        let looked = 2 * LOOK + bytes(&primary) + bytes(&one) + bytes(&other);
        assert_eq!(list.run(9_000).read, looked, "none of them is related");
        let shared = one.json().as_ptr();
        for (projection, read) in [(vec![], LOOK), (vec!["status".to_owned()], LOOK + bytes(&one))] {
            let query = ObjectQuery {
                object: one.reference(),
                projection,
                latest: false,
            };
            let question = Question::Object(query);
            let asked = (Arc::new((Role::Lifecycle, question)), Selection::default());
            let render = Render::new(vec![one.clone()], None, grant(Value::Null), asked);
            let rendered = render.run(9_000);
            assert_eq!(rendered.read, read);
            // Answers share the text of a whole object.
            let answer = rendered.answer.expect("an answer");
            assert_eq!(std::ptr::eq(answer.as_ptr(), shared), read == LOOK);
            assert_eq!(code(&render.run(10)), Some(Code::ResourceExhausted));
        }
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
