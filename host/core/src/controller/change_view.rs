//! What answers see of one change of an object. It is computed once for all questions that see the same part.
//!
//! The event loop does this for each change, so it looks at only so much for one tenant queue. Beyond that, any answer may
//! have changed, and the passes that find out are at the expense of that tenant queue.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::binding::{KindGrant, Relation};
use crate::contract::Question;
use crate::grants;
use crate::object::{Object, ResourceVersion};
use crate::reconcile::AnswerDelta;
use crate::render::digest_of_item;
use crate::selection::{self, LOOK, Selection};
use crate::shared::cache::Change;

/// The bytes of selectors and labels that are compared for one tenant queue because of one change: about a millisecond.
/// Several thousand lists need less, and only those count that no label of the object rules out (`wake_index.rs`).
const COMPARED: u64 = 512 << 10;
/// The bytes of objects that are read for one tenant queue because of one change: some milliseconds.
pub(super) const READ: u64 = 8 << 20;

/// The digests of the changed item before and after the change; `None` where there is no such item.
pub(super) type Sides = [Option<u128>; 2];

/// A change, and what different questions see of it.
pub(super) struct ChangeView<'a> {
    change: &'a Change,
    key: [u8; 16],
    /// The labels before and after the change.
    labels: [OnceCell<Value>; 2],
    /// The digests by the projection and the grant of a question.
    digests: BTreeMap<Vec<String>, Vec<(Arc<KindGrant>, Sides)>>,
    /// The field of the object that the relation of a grant compares, before and after the change.
    theirs: Vec<(Arc<KindGrant>, [Option<&'a str>; 2])>,
    /// The field of a primary that the relation of a grant compares, by the primary and the place of the grant in
    /// `theirs`.
    ours: BTreeMap<(String, ResourceVersion, usize), Option<Box<str>>>,
    /// The bytes that were compared, by tenant queue.
    compared: BTreeMap<Arc<str>, u64>,
    /// The bytes that were read, by tenant queue.
    read: BTreeMap<Arc<str>, u64>,
}

impl<'a> ChangeView<'a> {
    pub(super) fn new(change: &'a Change, key: [u8; 16]) -> Self {
        ChangeView {
            change,
            key,
            labels: [OnceCell::new(), OnceCell::new()],
            digests: BTreeMap::new(),
            theirs: Vec::new(),
            ours: BTreeMap::new(),
            compared: BTreeMap::new(),
            read: BTreeMap::new(),
        }
    }

    pub(super) fn change(&self) -> &'a Change {
        self.change
    }

    /// The labels of the object before and after the change.
    pub(super) fn all_labels(&self) -> BTreeSet<(&str, &str)> {
        let objects = self.objects();
        let sides = [0, 1].map(|side: usize| objects[side].map(|object| self.labels(side, object)));
        let labels = sides.into_iter().flatten().filter_map(Value::as_object).flatten();
        labels
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .collect()
    }

    /// Counts a look for a tenant queue; `None` if there were too many before.
    pub(super) fn look(&mut self, tenant_queue: &Arc<str>) -> Option<()> {
        self.compares(tenant_queue, LOOK)
    }

    /// The digests before and after the change for a question through a grant, but for the relation that the grant
    /// requires: that depends on the primary of each key. `None` if too much was compared for this tenant queue.
    pub(super) fn sides(
        &mut self,
        tenant_queue: &Arc<str>,
        (question, selection): (&Question, &Selection),
        grant: &Arc<KindGrant>,
    ) -> Option<Sides> {
        let objects = self.objects();
        let (projection, is_asked) = match question {
            Question::Object(query) => {
                self.compares(tenant_queue, LOOK)?;
                let (place, asked) = (&self.change.place, &query.object);
                let is_it =
                    asked.name == *place.name && asked.namespace.as_deref() == place.namespace.as_deref();
                (&query.projection, [is_it; 2])
            }
            Question::Objects(query) => {
                let compared = objects.iter().flatten().map(|object| selection.compares(object));
                self.compares(tenant_queue, compared.fold(LOOK, u64::saturating_add))?;
                if selection.reads_fields() {
                    self.reads(tenant_queue, bytes(objects.into_iter().flatten()))?;
                }
                let is_asked = [0, 1].map(|side: usize| {
                    objects[side]
                        .is_some_and(|object| selection.selects(query, object, || self.labels(side, object)))
                });
                (&query.projection, is_asked)
            }
            _ => return Some([None; 2]),
        };
        if is_asked == [false; 2] {
            return Some([None; 2]);
        }
        let digests = self.digests(tenant_queue, projection, grant)?;
        Some([0, 1].map(|side: usize| digests[side].filter(|_| is_asked[side])))
    }

    /// How the change alters one answer, of whose item these are the digests. `None` if too much was read for this
    /// tenant queue.
    pub(super) fn delta(
        &mut self,
        tenant_queue: &Arc<str>,
        question: &Question,
        grant: &Arc<KindGrant>,
        sides: Sides,
        primary: Option<&Object>,
    ) -> Option<AnswerDelta> {
        let mut delta = AnswerDelta::default();
        if sides[0] == sides[1] {
            return Some(delta);
        }
        let is_reached = self.is_reached(tenant_queue, grant, primary)?;
        let [before, after] = [0, 1].map(|side: usize| match is_reached[side] {
            true => sides[side],
            // A single object that is not related is refused. A refusal is another answer than "not found", so it has a
            // digest of its own.
            false if matches!(question, Question::Object(_)) => sides[side].map(|_| 0),
            false => None,
        });
        delta.by(before, after);
        Some(delta)
    }

    fn objects(&self) -> [Option<&'a Object>; 2] {
        [self.change.before.as_ref(), self.change.after.as_ref()]
    }

    fn labels(&self, side: usize, object: &Object) -> &Value {
        self.labels[side].get_or_init(|| selection::labels(object))
    }

    /// The digests of the part of the object that a grant and a projection show.
    fn digests(
        &mut self,
        tenant_queue: &Arc<str>,
        projection: &[String],
        grant: &Arc<KindGrant>,
    ) -> Option<Sides> {
        let of_projection = self.digests.get(projection);
        let known = of_projection.and_then(|known| known.iter().find(|(known, _)| known == grant));
        if let Some((_, digests)) = known {
            return Some(*digests);
        }
        let objects = self.objects();
        self.reads(tenant_queue, bytes(objects.into_iter().flatten()))?;
        let digests = objects.map(|object| Some(digest_of_item(&self.key, grant, object?, projection)));
        let known = self.digests.entry(projection.to_vec()).or_default();
        known.push((grant.clone(), digests));
        Some(digests)
    }

    /// Whether a grant reaches the object before and after the change.
    fn is_reached(
        &mut self,
        tenant_queue: &Arc<str>,
        grant: &Arc<KindGrant>,
        primary: Option<&Object>,
    ) -> Option<[bool; 2]> {
        let objects = self.objects();
        let (ours, theirs) = match &grant.relation {
            None => (None, [None; 2]),
            Some(relation) => {
                let at = self.theirs(tenant_queue, grant, relation)?;
                let theirs = self.theirs.get(at)?.1;
                (self.ours(tenant_queue, (at, relation), primary)?, theirs)
            }
        };
        let own = primary.and_then(Object::namespace);
        Some([0, 1].map(|side: usize| {
            objects[side].is_some_and(|object| grants::is_reached(grant, own, [ours, theirs[side]], object))
        }))
    }

    /// The place in `theirs` of what the relation of a grant compares.
    fn theirs(
        &mut self,
        tenant_queue: &Arc<str>,
        grant: &Arc<KindGrant>,
        relation: &Relation,
    ) -> Option<usize> {
        let known = self.theirs.iter().position(|(known, _)| known == grant);
        if known.is_some() {
            return known;
        }
        let objects = self.objects();
        self.reads(tenant_queue, bytes(objects.into_iter().flatten()))?;
        let theirs = objects.map(|object| object?.text_at(&relation.theirs));
        self.theirs.push((grant.clone(), theirs));
        Some(self.theirs.len() - 1)
    }

    fn ours(
        &mut self,
        tenant_queue: &Arc<str>,
        (at, relation): (usize, &Relation),
        primary: Option<&Object>,
    ) -> Option<Option<&str>> {
        let Some(primary) = primary else {
            return Some(None);
        };
        let of = (primary.uid().to_owned(), primary.version(), at);
        if !self.ours.contains_key(&of) {
            self.reads(tenant_queue, bytes([primary]))?;
            let ours = primary.text_at(&relation.ours).map(Box::from);
            self.ours.insert(of.clone(), ours);
        }
        Some(self.ours.get(&of)?.as_deref())
    }

    /// Whether all that may be compared or read for a tenant queue has been.
    pub(super) fn is_too_much(&self, tenant_queue: &Arc<str>) -> bool {
        let is_spent = |spent: &BTreeMap<Arc<str>, u64>, limit| {
            let spent = spent.get(tenant_queue);
            spent.is_some_and(|spent| *spent >= limit)
        };
        is_spent(&self.compared, COMPARED) || is_spent(&self.read, READ)
    }

    /// Counts bytes that are compared for a tenant queue; `None` if those before were too many.
    fn compares(&mut self, tenant_queue: &Arc<str>, bytes: u64) -> Option<()> {
        spend(&mut self.compared, tenant_queue, bytes, COMPARED)
    }

    /// Counts bytes of objects that are read for a tenant queue; `None` if those before were too many.
    fn reads(&mut self, tenant_queue: &Arc<str>, bytes: u64) -> Option<()> {
        spend(&mut self.read, tenant_queue, bytes, READ)
    }
}

fn spend(spent: &mut BTreeMap<Arc<str>, u64>, by: &Arc<str>, bytes: u64, limit: u64) -> Option<()> {
    match spent.get_mut(by) {
        Some(spent) if *spent >= limit => None,
        Some(spent) => {
            *spent = spent.saturating_add(bytes);
            Some(())
        }
        None => {
            spent.insert(by.clone(), bytes);
            Some(())
        }
    }
}

/// The bytes of all of these objects.
pub(super) fn bytes<'o>(objects: impl IntoIterator<Item = &'o Object>) -> u64 {
    let lengths = objects.into_iter().map(|object| object.json().len() as u64);
    lengths.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Scope;
    use crate::contract::{ListQuery, ObjectQuery};
    use crate::key::ObjectKey;
    use serde_json::json;

    /// A change of a Node: its only field, of so many bytes.
    fn change(bytes: usize) -> Change {
        let node = |size: &str| {
            Object::new(
                json!({"apiVersion": "v1", "kind": "Node", "spec": {"of": size.repeat(bytes)},
                "metadata": {"name": "n", "uid": "u", "labels": {"a": size}}}),
            )
        };
        let after = node("x");
        let scope = Scope {
            kind: after.kind(),
            namespace: None,
            name: None,
            node: None,
            fields: Vec::new(),
        };
        Change {
            scope,
            place: ObjectKey::from(&after),
            before: Some(node("y")),
            after: Some(after),
        }
    }

    fn grant(relation: Value) -> Arc<KindGrant> {
        let grant = json!({"apiVersion": "v1", "kind": "Node", "namespaces": ["*"], "relation": relation});
        Arc::new(serde_json::from_value(grant).expect("a grant"))
    }

    fn list(change: impl FnOnce(&mut ListQuery)) -> (Question, Selection) {
        let mut query = ListQuery::all(grant(Value::Null).kind());
        change(&mut query);
        let question = Question::Objects(query);
        let selection = Selection::of(&question).expect("selectors");
        (question, selection)
    }

    /// How many of the questions are compared for a tenant queue.
    fn compared(
        view: &mut ChangeView<'_>,
        queue: &str,
        asked: impl Iterator<Item = (Question, Selection)>,
    ) -> usize {
        let grant = grant(Value::Null);
        let sides = |(question, selection)| view.sides(&queue.into(), (&question, &selection), &grant);
        asked.filter_map(sides).count()
    }

    #[test]
    fn a_list_sees_a_change_of_what_it_selects_and_a_question_about_an_object_that_of_its_object() {
        let change = change(1);
        let mut view = ChangeView::new(&change, [0; 16]);
        let mut is_seen = |(question, selection): (Question, Selection)| {
            let sides = view.sides(&"q".into(), (&question, &selection), &grant(Value::Null));
            sides.map(|sides| sides.map(|side| side.is_some()))
        };
        let selecting = |label: &str| list(|query| query.label_selector = Some(label.into()));
        assert_eq!(is_seen(selecting("a=y")), Some([true, false]));
        assert_eq!(is_seen(selecting("a")), Some([true, true]));
        assert_eq!(is_seen(selecting("b")), Some([false, false]));
        let about = |name: &str| {
            let mut object = change.after.as_ref().expect("it exists").reference();
            object.name = name.into();
            let query = ObjectQuery {
                object,
                projection: Vec::new(),
                latest: false,
            };
            (Question::Object(query), Selection::default())
        };
        assert_eq!(is_seen(about("n")), Some([true, true]));
        assert_eq!(is_seen(about("m")), Some([false, false]));
        assert_eq!(
            is_seen((Question::Lock("n".into()), Selection::default())),
            Some([false, false])
        );
    }

    #[test]
    fn a_question_sees_what_its_own_grant_shows() {
        let change = change(1);
        let mut view = ChangeView::new(&change, [0; 16]);
        let (question, selection) = list(|_| {});
        let mut sides = |field: &str| {
            let grant = json!({"apiVersion": "v1", "kind": "Node", "namespaces": ["*"], "fields": [field]});
            let grant = Arc::new(serde_json::from_value(grant).expect("a grant"));
            view.sides(&"q".into(), (&question, &selection), &grant)
        };
        assert_ne!(sides("spec"), sides("metadata.name"));
        assert_eq!(sides("spec"), sides("spec"));
    }

    #[test]
    fn so_many_questions_are_compared_for_a_tenant_queue_and_those_of_others_as_well() {
        let change = change(1);
        let many = || (0..30_000).map(|n| list(|query| query.label_selector = Some(format!("a!=z{n}"))));
        let mut view = ChangeView::new(&change, [0; 16]);
        let of_one = compared(&mut view, "one", many());
        assert!((3_000..10_000).contains(&of_one), "{of_one}");
        assert_eq!(compared(&mut view, "one", many().take(9)), 0);
        assert_eq!(compared(&mut view, "other", many().take(9)), 9);
        let looks = (0..30_000).map_while(|_| view.look(&"third".into())).count();
        assert!((3_000..10_000).contains(&looks), "{looks}");
    }

    #[test]
    fn so_much_of_objects_is_read_for_a_tenant_queue_and_what_questions_share_is_read_once() {
        let change = change(1 << 20);
        let part = |part: String| list(|query| query.projection = vec![part]);
        let field = |n: usize| list(|query| query.field_selector = Some(format!("spec.x!={n}")));
        let mut view = ChangeView::new(&change, [0; 16]);
        let same = (0..1_000).map(|_| part("spec.of".into()));
        assert_eq!(compared(&mut view, "q", same), 1_000);
        assert_eq!(
            compared(&mut view, "q", (0..50).map(|n| part(format!("spec.x{n}")))),
            3
        );
        assert_eq!(
            compared(&mut ChangeView::new(&change, [0; 16]), "q", (0..50).map(field)),
            3
        );
    }

    #[test]
    fn a_relation_is_read_once_of_the_object_and_once_of_each_primary() {
        let change = change(1 << 20);
        let relation = grant(json!({"ours": "spec.of", "theirs": "spec.of"}));
        let primary = |uid: usize, version: u64, of: &Value| {
            Object::new(
                json!({"metadata": {"uid": uid.to_string(), "resourceVersion": version.to_string()}, "spec": of}),
            )
        };
        let theirs = change.after.as_ref().expect("it exists").tree()["spec"].clone();
        let mut view = ChangeView::new(&change, [0; 16]);
        let (question, _) = list(|_| {});
        let mut delta = |primary: &Object| {
            let sides = [Some(1), Some(2)];
            view.delta(&"q".into(), &question, &relation, sides, Some(primary))
        };
        let mut entered = AnswerDelta::default();
        entered.by(None, Some(2));
        // The object takes two MiB, and a related primary one.
        let related = primary(1, 1, &theirs);
        assert!((0..100).all(|_| delta(&related) == Some(entered)));
        let other = primary(1, 2, &json!({"of": "z"}));
        assert_eq!(
            delta(&other),
            Some(AnswerDelta::default()),
            "another version of it"
        );
        let more = (2..50).map_while(|uid| delta(&primary(uid, 1, &theirs))).count();
        assert_eq!(more, 5);
        assert_eq!(delta(&related), Some(entered), "it is known");
    }
}
