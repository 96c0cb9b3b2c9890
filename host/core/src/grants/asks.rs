//! Checks which questions are answered, and what an answer may show.

use std::borrow::Cow;
use std::sync::Arc;

use polity_kube_rules::fields::Requirement;
use serde_json::Value;

use super::compiled::{
    Grants, RequestTarget, check_kind, check_names, check_reference, check_sealed, check_word, operation,
};
use super::grant::Verb;
use super::refusal::{MissingGrant, Refusal, named};
use crate::binding::{Binding, KindGrant};
use crate::catalogue::OperationEffect;
use crate::contract::{Code, Document, Failure, ListQuery, Question, Role};
use crate::object::Object;
use crate::scope::{KEPT_METADATA, Scope};
use crate::selection::Selection;

/// Fields that every answer shows, whatever the grant says.
const IDENTITY: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Who answers a granted question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answerer {
    /// A watch, or the API server in its place. Holds the grant that lets the question through, the scope of the watch,
    /// and the selectors of the question.
    Watch(Arc<KindGrant>, Scope, Selection),
    /// The host, a cloud, or the API server.
    Call,
}

/// Checks a question against the grants.
pub fn check_question(
    binding: &Binding,
    role: Role,
    primary: Option<&Object>,
    question: &Question,
) -> Result<Answerer, Refusal> {
    check_parsed(binding, role, primary, question, None)
}

/// Checks a question whose selectors may have been parsed before: a pass that begins asks all that the last one used.
pub(crate) fn check_parsed(
    binding: &Binding,
    role: Role,
    primary: Option<&Object>,
    question: &Question,
    parsed: Option<&Selection>,
) -> Result<Answerer, Refusal> {
    check_size(question)?;
    at_home(cluster_of(question))?;
    let own = primary.and_then(Object::namespace);
    let grants = &binding.grants;
    match question {
        Question::Object(query) => {
            let object = &query.object;
            check_reference(object)?;
            let grant = grants
                .admits(Verb::Ask, &object.kind, own, &RequestTarget::object(object))
                .ok_or_else(|| MissingGrant::to(format!("{} {}", Verb::Ask, named(object))))?;
            let scope = scope(grant, own, object.namespace.as_deref(), None);
            Ok(Answerer::Watch(grant.clone(), scope, Selection::default()))
        }
        Question::Objects(query) => {
            let parsed = parsed.map_or_else(|| Selection::of(question), |parsed| Ok(parsed.clone()));
            list(grants, own, query, parsed?)
        }
        Question::Secret(object) => {
            check_names(object)?;
            if grants.covers_secret(own, object.namespace.as_deref(), &object.name) {
                Ok(Answerer::Call)
            } else {
                Err(MissingGrant::to(format!("see Secret {}", object.name)).into())
            }
        }
        Question::Cloud(call) => {
            let is_read = |effect| effect == OperationEffect::Read;
            let operation = operation(grants, &binding.catalogue, &call.operation, is_read)?;
            check_sealed(grants, primary, operation, call.arguments.tree(&call.operation)?)?;
            Ok(Answerer::Call)
        }
        Question::Lock(name) => {
            check_word(name)?;
            if grants.covers_lock(name) {
                Ok(Answerer::Call)
            } else {
                Err(MissingGrant::to(format!("lock {name}")).into())
            }
        }
        Question::Credential(plan) if role == Role::Identity && is_no_session(plan) => Ok(Answerer::Call),
        Question::Credential(plan) => {
            if grants.credential && role == Role::Identity {
                check_plan(binding, primary, plan.tree("credential")?)?;
                Ok(Answerer::Call)
            } else {
                Err(MissingGrant::to("credential").into())
            }
        }
        Question::Reachable(_) if grants.reachable => Ok(Answerer::Call),
        Question::Reachable(_) => Err(MissingGrant::to("ask whether the API server answers").into()),
    }
}

/// Whether a credential plan is `null`. The host answers it itself, with a handle that every cloud refuses.
pub(crate) fn is_no_session(plan: &Document) -> bool {
    plan.tree("credential").is_ok_and(Value::is_null)
}

/// The cluster that a question is about, if the question names one.
fn cluster_of(question: &Question) -> Option<&str> {
    match question {
        Question::Object(query) => query.object.cluster.as_deref(),
        Question::Objects(query) => query.cluster.as_deref(),
        Question::Secret(object) => object.cluster.as_deref(),
        Question::Reachable(cluster) => cluster.as_deref(),
        Question::Cloud(_) | Question::Lock(_) | Question::Credential(_) => None,
    }
}

fn list(
    grants: &Grants,
    own: Option<&str>,
    query: &ListQuery,
    selection: Selection,
) -> Result<Answerer, Refusal> {
    check_kind(&query.kind)?;
    if query.page.is_some() {
        let message = format!("list {}: this host serves no pages of lists", query.kind.kind);
        return Err(Failure::new(Code::Unimplemented, message).into());
    }
    let target = RequestTarget {
        namespace: query.namespace.as_deref(),
        ..RequestTarget::default()
    };
    let grant = grants
        .admits(Verb::Ask, &query.kind, own, &target)
        .ok_or_else(|| MissingGrant::to(format!("list {}", query.kind.kind)))?;
    if let Some(field) = hidden_field(grant, &selection) {
        let kind = &query.kind.kind;
        let what = format!("select {kind} by {field}, which its grant does not show");
        return Err(MissingGrant::to(what).into());
    }
    // A list without a namespace covers all namespaces of the grant. If the grant names none, that is the primary's
    // own namespace. A grant with a relation also covers cluster-scoped objects.
    let own_only = grant.namespaces.is_none() && grant.relation.is_none();
    let namespace = query.namespace.as_deref().or(own.filter(|_| own_only));
    Ok(Answerer::Watch(
        grant.clone(),
        scope(grant, own, namespace, node_of(query, &selection)),
        selection,
    ))
}

/// A field that a list selects by although the grant does not show it. The selection would disclose its value.
fn hidden_field(grant: &KindGrant, selection: &Selection) -> Option<String> {
    let shown = grant.fields.as_ref()?;
    let is_shown = |field: &str| {
        let within = |path: &String| {
            let rest = field.strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        IDENTITY.contains(&field) || shown.iter().any(within)
    };
    let mut fields = selection.fields().iter().map(|requirement| &requirement.field);
    fields.find(|field| !is_shown(field)).cloned()
}

/// The scope of the watch that answers a question under a grant. Questions with equal scopes share one watch.
fn scope(grant: &KindGrant, own: Option<&str>, asked: Option<&str>, node: Option<String>) -> Scope {
    let namespace = match &grant.namespaces {
        Some(all) if all.iter().any(|n| n == "*") => None,
        Some(_) => asked.map(str::to_owned),
        None => asked.and(own).map(str::to_owned),
    };
    let mut fields = grant.fields.clone().unwrap_or_default();
    if let Some(relation) = grant.relation.as_ref().filter(|_| !fields.is_empty()) {
        // The relation is checked with this field. Answers do not show it.
        fields.push(relation.theirs.clone());
    }
    Scope {
        kind: grant.kind(),
        namespace,
        name: grant.name.clone(),
        node,
        fields,
    }
}

/// The part of an object that a grant shows, as text.
pub(crate) fn shown<'a>(grant: &KindGrant, object: &'a str) -> Cow<'a, str> {
    let Some(fields) = &grant.fields else {
        return Cow::Borrowed(object);
    };
    let fields = fields.iter().map(String::as_str);
    Cow::Owned(crate::projection::project(object, fields.chain(KEPT_METADATA)))
}

/// The largest size of the selectors and of the projection of a question in bytes. It limits memory: the host keeps
/// each question for as long as a key depends on its answer. Useful selectors are much shorter, because the value of
/// a label has at most 63 characters.
const QUESTION: usize = 4_096;

fn check_size(question: &Question) -> Result<(), Failure> {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let (selectors, projection) = match question {
        Question::Object(query) => (0, &query.projection),
        Question::Objects(query) => {
            let selectors = length(&query.label_selector).saturating_add(length(&query.field_selector));
            (selectors, &query.projection)
        }
        _ => return Ok(()),
    };
    let paths: usize = projection.iter().map(|path| path.len() + 1).sum();
    let bytes = selectors.max(paths);
    if bytes > QUESTION {
        let message = format!("the selectors or the projection have {bytes} bytes; the limit is {QUESTION}");
        return Err(Failure::new(Code::InvalidArgument, message));
    }
    Ok(())
}

/// Whether a credential plan names only what its primary may use: Secrets that grants allow to see, and granted service
/// accounts of the primary's own namespace.
fn check_plan(binding: &Binding, primary: Option<&Object>, plan: &Value) -> Result<(), Refusal> {
    let own = primary.and_then(Object::namespace);
    // This cloud has no plans, so it decides alone.
    let Some(credential) = &binding.catalogue.credential else {
        return Ok(());
    };
    for secret in credential.secrets(plan) {
        let (namespace, name) = (secret["namespace"].as_str(), secret["name"].as_str());
        let name = name.unwrap_or_default();
        check_word(name)?;
        if !binding.grants.covers_secret(own, namespace, name) {
            return Err(MissingGrant::to(format!("credential of Secret {name}")).into());
        }
    }
    for account in credential.service_accounts(plan) {
        let (namespace, name) = (account["namespace"].as_str(), account["name"].as_str());
        let name = name.unwrap_or_default();
        if own.is_none() || namespace != own || !binding.grants.covers_service_account(name) {
            let namespace = namespace.unwrap_or_default();
            check_word(namespace)?;
            check_word(name)?;
            let what = format!("credential by a token of ServiceAccount {namespace}/{name}");
            return Err(MissingGrant::to(what).into());
        }
    }
    Ok(())
}

/// Refuses other clusters: this host only uses the cluster of the primary.
pub(super) fn at_home(cluster: Option<&str>) -> Result<(), Failure> {
    match cluster {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(80).collect();
            let message = format!("cluster {name}: this host reaches no other cluster");
            Err(Failure::new(Code::Unimplemented, message))
        }
    }
}

/// The node whose Pods a list selects. Its watch needs to show no others.
fn node_of(query: &ListQuery, selection: &Selection) -> Option<String> {
    let is_node = |by: &&Requirement| by.is_equal && by.field == "spec.nodeName";
    let named = selection.fields().iter().find(is_node)?;
    (query.kind.kind == "Pod").then(|| named.value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Grant;
    use crate::contract::{Act, CloudCall, Kind, Mint, ObjectQuery, ObjectRef};
    use serde_json::json;

    fn grants(all: Value) -> Grants {
        let all: Vec<Grant> = serde_json::from_value(all).expect("grants");
        Grants::compile(&all)
    }

    fn secrets_of(grants: &Grants, query: &ListQuery) -> Result<Scope, String> {
        let selection = Selection::of(&Question::Objects(query.clone())).expect("selectors");
        match list(grants, Some("team"), query, selection) {
            Ok(Answerer::Watch(_, scope, _)) => Ok(scope),
            Ok(Answerer::Call) => panic!("a watch answers it"),
            Err(refusal) => Err(Failure::from(refusal).message),
        }
    }

    fn all(namespace: Option<&str>, field_selector: Option<&str>) -> ListQuery {
        ListQuery {
            namespace: namespace.map(str::to_owned),
            field_selector: field_selector.map(str::to_owned),
            ..ListQuery::all(Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            })
        }
    }

    #[test]
    fn a_list_without_a_namespace_is_of_the_own_one_unless_its_grant_reaches_further() {
        let own = grants(json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap"}}]));
        let scope = secrets_of(&own, &all(None, None)).expect("granted");
        assert_eq!(
            scope.namespace.as_deref(),
            Some("team"),
            "it takes no rights in the whole cluster"
        );
        assert!(secrets_of(&own, &all(Some("other"), None)).is_err());
        let every = grants(json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["*"]}}]));
        assert_eq!(
            secrets_of(&every, &all(None, None)).expect("granted").namespace,
            None
        );
        let one = secrets_of(&every, &all(Some("other"), None)).expect("granted");
        assert_eq!(one.namespace, None, "one watch shows all namespaces");
        let two = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["a", "b"]}}]);
        let one = secrets_of(&grants(two), &all(Some("a"), None)).expect("granted");
        assert_eq!(
            one.namespace.as_deref(),
            Some("a"),
            "it takes no rights beyond the grant"
        );
        let named = grants(json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap", "name": "one"}}]));
        assert!(secrets_of(&named, &all(None, None)).is_err(), "a name is no list");
    }

    #[test]
    fn nothing_is_selected_by_a_field_that_the_grant_does_not_show() {
        let some =
            grants(json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap", "fields": ["data.open"]}}]));
        for (selector, granted) in [
            ("data.open=x", true),
            ("data.open.inner==x", true),
            ("metadata.name=x", true),
            ("data.hidden=x", false),
            ("data.open=x,data.hidden!=x", false),
            ("data.openness=x", false),
            ("data=x", false),
        ] {
            let answer = secrets_of(&some, &all(None, Some(selector)));
            assert_eq!(answer.is_ok(), granted, "{selector}: {answer:?}");
        }
    }

    #[test]
    fn two_grants_of_a_kind_never_add_up() {
        let both = grants(json!([
            {"ask": {"apiVersion": "v1", "kind": "ConfigMap", "fields": ["data.open"]}},
            {"ask": {"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["public"], "name": "site"}},
        ]));
        let admitted = |namespace: &str, name: &str| {
            let object = ObjectRef {
                cluster: None,
                kind: all(None, None).kind,
                namespace: Some(namespace.into()),
                name: name.into(),
            };
            let grant = both.admits(
                Verb::Ask,
                &object.kind,
                Some("team"),
                &RequestTarget::object(&object),
            )?;
            Some((grant.fields.is_some(), grant.name.is_some()))
        };
        assert_eq!(
            admitted("team", "site"),
            Some((true, false)),
            "its fields stay hidden"
        );
        assert_eq!(admitted("public", "site"), Some((false, true)));
        assert_eq!(admitted("public", "other"), None);
    }

    #[test]
    fn what_a_grant_hides_is_hidden_in_every_answer() {
        let grant: KindGrant = serde_json::from_value(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "fields": ["data.open"],
                "relation": {"ours": "metadata.name", "theirs": "data.machine"}}),
        )
        .expect("a grant");
        let object = |machine: &str| {
            Object::new(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"open": 1, "hidden": 2, "machine": machine},
                "metadata": {"namespace": "team", "name": "site", "uid": "s", "resourceVersion": "5"}}),
            )
        };
        let primary = Object::new(json!({"metadata": {"namespace": "team", "name": "m"}}));
        let query = |projection: &[&str]| ObjectQuery {
            object: object("m").reference(),
            projection: projection.iter().map(|path| (*path).to_owned()).collect(),
            latest: true,
        };
        let answer = |projection: &[&str], machine: &str| {
            let found = object(machine);
            let query = query(projection);
            let question = Question::Object(query.clone());
            let asked = (Arc::new((Role::Lifecycle, question)), Selection::default());
            let (found, primary) = (vec![found], Some(primary.clone()));
            let render = crate::render::Render::new(found, primary, grant.clone().into(), asked);
            let text = render.run(10_000).answer;
            text.map(|text| serde_json::from_str::<Value>(&text).expect("JSON"))
        };
        for projection in [&[][..], &["data"], &["data.hidden", "data.open"]] {
            let data = answer(projection, "m").expect("related")["data"].clone();
            assert_eq!(data, json!({"open": 1}), "{projection:?}");
        }
        assert!(answer(&[], "another").is_err());
        // The watch keeps the field that the relation is checked with, and nothing else.
        let shown = scope(&grant, Some("team"), Some("team"), None).fields;
        assert_eq!(shown, ["data.open", "data.machine"]);
    }

    fn code(binding: &Binding, role: Role, question: &Question) -> Result<(), Code> {
        let primary = Object::new(json!({"metadata": {"namespace": "team", "name": "m"}}));
        let told = check_question(binding, role, Some(&primary), question);
        told.map(drop).map_err(|refusal| Failure::from(refusal).code)
    }

    fn cloud(operation: &str) -> Question {
        Question::Cloud(CloudCall {
            operation: operation.into(),
            arguments: "{}".into(),
        })
    }

    fn bound(all: Value) -> Binding {
        let all: Vec<Grant> = serde_json::from_value(all).expect("grants");
        crate::reconcile::fixture_binding(&[]).with_grants(all)
    }

    fn secret(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "v1".into(),
                kind: "Secret".into(),
            },
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    #[test]
    fn a_question_has_so_many_bytes_of_paths_and_of_selectors_and_no_more() {
        let binding = bound(json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap"}}]));
        let labels = format!("k in (a{})", ",a".repeat(1_000));
        for (bytes, expected) in [(QUESTION, Ok(())), (QUESTION + 1, Err(Code::InvalidArgument))] {
            // Each path counts one byte more than its length.
            let projection = vec!["a".repeat(9), "b".repeat(bytes - 11)];
            let query = ListQuery {
                projection: projection.clone(),
                ..all(None, None)
            };
            let object = ObjectQuery {
                object: ObjectRef {
                    kind: query.kind.clone(),
                    ..secret("team", "a")
                },
                projection,
                latest: false,
            };
            let name = "n".repeat(bytes - labels.len() - "metadata.name=".len());
            let labelled = ListQuery {
                label_selector: Some(labels.clone()),
                ..all(None, Some(&format!("metadata.name={name}")))
            };
            for question in [
                Question::Objects(query),
                Question::Object(object),
                Question::Objects(labelled),
            ] {
                assert_eq!(code(&binding, Role::Lifecycle, &question), expected, "{bytes}");
            }
        }
        for (labels, fields) in [(Some("a in"), None), (None, Some("a"))] {
            let query = ListQuery {
                label_selector: labels.map(str::to_owned),
                ..all(None, fields)
            };
            let told = code(&binding, Role::Lifecycle, &Question::Objects(query));
            assert_eq!(told, Err(Code::InvalidArgument), "{labels:?} {fields:?}");
        }
    }

    #[test]
    fn a_plan_names_no_credentials_of_others() {
        let mut binding = bound(json!([
            {"credential": true}, {"secrets": {"name": "granted"}}, {"serviceAccounts": ["granted", "team-*"]},
        ]));
        Arc::make_mut(&mut binding.catalogue).credential = Some(crate::catalogue::Credential {
            schema: Value::Null,
            secrets: vec!["secret".into()],
            service_accounts: vec!["account".into()],
        });
        let denied = Err(Code::PermissionDenied);
        for (plan, expected) in [
            (json!({}), Ok(())),
            (
                json!({"secret": {"namespace": "team", "name": "granted"}}),
                Ok(()),
            ),
            (
                json!({"secret": {"namespace": "other", "name": "granted"}}),
                denied,
            ),
            (json!({"secret": {"namespace": "team", "name": "other"}}), denied),
            (
                json!({"account": {"namespace": "team", "name": "granted"}}),
                Ok(()),
            ),
            (
                json!({"account": {"namespace": "team", "name": "team-a"}}),
                Ok(()),
            ),
            (json!({"account": {"namespace": "team", "name": "other"}}), denied),
            (json!({"account": {"namespace": "team"}}), denied),
            (
                json!({"account": {"namespace": "other", "name": "granted"}}),
                denied,
            ),
            (json!({"account": {}}), denied),
        ] {
            let question = Question::Credential(plan.to_string().into());
            assert_eq!(code(&binding, Role::Identity, &question), expected, "{plan}");
            assert_eq!(code(&binding, Role::Lifecycle, &question), denied, "{plan}");
        }
        let none = Question::Credential("null".into());
        let ungranted = bound(json!([]));
        assert_eq!(
            code(&ungranted, Role::Identity, &none),
            Ok(()),
            "it opens nothing"
        );
        assert_eq!(code(&ungranted, Role::Lifecycle, &none), denied);
        let account = Question::Credential(r#"{"account": {}}"#.into());
        let nobody = check_question(&binding, Role::Identity, None, &account);
        assert!(nobody.is_err(), "what has no namespace has no service accounts");
    }

    #[test]
    fn what_no_watch_answers_takes_a_grant_of_its_own() {
        let denied = Err(Code::PermissionDenied);
        let some =
            bound(json!([{"secrets": {}}, {"lock": ["one"]}, {"reachable": true}, {"cloud": ["vm.*"]}]));
        let elsewhere = ObjectRef {
            cluster: Some("other".into()),
            ..secret("team", "a")
        };
        for (question, expected, ungranted) in [
            (Question::Secret(secret("team", "a")), Ok(()), denied),
            (Question::Secret(secret("other", "a")), denied, denied),
            (
                Question::Secret(secret("team", "")),
                Err(Code::InvalidArgument),
                Err(Code::InvalidArgument),
            ),
            (
                Question::Secret(elsewhere),
                Err(Code::Unimplemented),
                Err(Code::Unimplemented),
            ),
            (Question::Lock("one".into()), Ok(()), denied),
            (Question::Lock("ones".into()), denied, denied),
            (Question::Reachable(None), Ok(()), denied),
            (
                Question::Reachable(Some("other".into())),
                Err(Code::Unimplemented),
                Err(Code::Unimplemented),
            ),
            (cloud("vm.get"), Ok(()), denied),
            (cloud("vm.stop"), Err(Code::InvalidArgument), denied),
        ] {
            assert_eq!(code(&some, Role::Lifecycle, &question), expected, "{question:?}");
            assert_eq!(
                code(&bound(json!([])), Role::Lifecycle, &question),
                ungranted,
                "{question:?}"
            );
        }
    }

    #[test]
    fn a_primary_in_no_namespace_lists_only_where_a_grant_reaches() {
        for (more, namespace, is_granted) in [
            (json!({}), None, false),
            (json!({}), Some("team"), false),
            (json!({"namespaces": ["team"]}), Some("team"), true),
            (json!({"namespaces": ["team"]}), None, false),
            (json!({"namespaces": ["*"]}), None, true),
            (
                json!({"relation": {"theirs": "spec.nodeName", "ours": "metadata.name"}}),
                None,
                true,
            ),
        ] {
            let mut grant = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            crate::merge::apply(&more, &mut grant);
            let grants = grants(json!([{"ask": grant}]));
            let query = all(namespace, None);
            let told = list(&grants, None, &query, Selection::default());
            assert_eq!(told.is_ok(), is_granted, "{more} {namespace:?}");
        }
    }

    #[test]
    fn a_word_that_is_longer_than_any_name_is_wrong_and_kept_in_no_refusal() {
        let nothing = bound(json!([]));
        for (length, expected) in [(253, Code::PermissionDenied), (254, Code::InvalidArgument)] {
            let word = "a".repeat(length);
            let named = |api_version: &str, kind: &str| Kind {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            let asks = [named(&word, "Any"), named("v1", &word)].map(|kind| {
                let object = ObjectRef {
                    kind: kind.clone(),
                    ..secret("team", "m")
                };
                let query = ObjectQuery {
                    object,
                    projection: Vec::new(),
                    latest: false,
                };
                [Question::Object(query), Question::Objects(ListQuery::all(kind))]
            });
            let mut questions = asks.concat();
            questions.push(Question::Lock(word.clone()));
            questions.push(cloud(&word));
            for question in questions {
                let told = code(&nothing, Role::Lifecycle, &question);
                assert_eq!(told, Err(expected), "{length} {}", question.operation());
            }
            let minted = Act::Mint(Mint {
                cluster: None,
                kind: word,
                ttl: 1,
            });
            let told = super::super::check_act(&nothing, Role::Lifecycle, None, &minted);
            assert_eq!(told.map_err(|refusal| Failure::from(refusal).code), Err(expected));
        }
    }

    #[test]
    fn pods_of_a_node_are_watched_by_themselves() {
        let of = |kind: &str, selector: &str| {
            let grants = grants(json!([{"ask": {"apiVersion": "v1", "kind": kind}}]));
            let mut query = all(None, Some(selector));
            query.kind.kind = kind.into();
            secrets_of(&grants, &query).expect("granted").node
        };
        let node = Some("n".to_owned());
        assert_eq!(of("Pod", "spec.nodeName=n"), node);
        assert_eq!(of("Pod", "status.phase!=Failed,spec.nodeName==n"), node);
        assert_eq!(of("Pod", "status.phase!=Failed"), None);
        assert_eq!(of("ConfigMap", "spec.nodeName=n"), None);
    }
}
