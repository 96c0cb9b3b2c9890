//! Sites: each counts the Widgets beside it, keeps ConfigMaps of its own, drains Pods of its name, and now and then takes
//! a turn that only one Site of a namespace may have. Its waits are those of a retry policy.

use polity_core::binding::{Binding, Grant, KindGrant, Relation};
use polity_core::contract::{
    Act, Code, Eviction, Failure, Kind, ListQuery, Manifest, Next, ObjectDelete, ObjectPatch, ObjectRef,
    Precondition, Question, RetryRequest, Role, Wait,
};
use serde_json::{Value, json};

use super::{crd, first, form, is_faulty, is_quarantined, text};
use crate::simulation::bindings::{WIDGETS, binding as bound, kind, manifest};
use crate::simulation::native::{Cx, Pending, failed};
use crate::simulation::oracle::KEPT;
use crate::simulation::store::{Change, Place, Store};

/// The `apiVersion` of Sites.
pub const SITES: &str = "sites.example.com/v1";
/// The finalizer that their lifecycle names.
pub const FINALIZER: &str = "sites.example.com/site";
/// The namespace in which a Site that pries would make something. Nothing reaches it.
const ELSEWHERE: &str = "elsewhere";
/// The annotation of a ConfigMap with the generation of the Site that looked at it.
const SEEN: &str = "sites.example.com/seen";
/// More Widgets than this are many.
const MANY: u32 = 1;

/// Sites in the first form of their policies.
pub fn binding() -> Binding {
    let lifecycle = Manifest {
        finalizer: Some(FINALIZER.to_owned()),
        crd: Some(crd(&json!({"conditions": {"type": "array"}}))),
        ..manifest(
            "site",
            Role::Lifecycle,
            Vec::new(),
            &["metadata.finalizers", "metadata.annotations", "status"],
        )
    };
    let patience = manifest("patience", Role::Retry, Vec::new(), &[]);
    let (maps, pods) = (kind("v1", "ConfigMap"), related());
    let grants = vec![
        Grant::Ask(kind(WIDGETS, "Widget")),
        Grant::Ask(kind(SITES, "Site")),
        Grant::Ask(maps.clone()),
        Grant::Create(maps.clone()),
        Grant::Patch(maps.clone()),
        Grant::Delete(maps),
        Grant::Ask(pods.clone()),
        Grant::Evict(pods),
        Grant::Lock(vec!["turn".to_owned()]),
    ];
    bound(
        "sites",
        (SITES, "Site"),
        [first(lifecycle), first(patience)],
        grants,
        Default::default(),
    )
}

/// Pods that name the Site as their node.
fn related() -> KindGrant {
    KindGrant {
        relation: Some(Relation {
            theirs: "spec.nodeName".to_owned(),
            ours: "metadata.name".to_owned(),
        }),
        ..kind("v1", "Pod")
    }
}

/// Doubled with each attempt, and more in every other form of the policy. Now and then any change may end it.
pub fn patience(request: &RetryRequest) -> Wait {
    let config: Value = serde_json::from_str(&request.config).unwrap_or_default();
    let base = 300 + 12_000 * (config["form"].as_u64().unwrap_or(0) % 2);
    let wait = (base << request.attempt.min(4)) + request.seed % 100;
    if request.seed.is_multiple_of(3) {
        Wait::OnChange(Some(wait))
    } else {
        Wait::After(wait)
    }
}

/// The policy of Sites.
pub fn lifecycle(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    if cx.is_deleting() {
        return leave(cx);
    }
    for duty in [count_widgets, keep_maps, drain, pry] {
        if let Some(failure) = duty(cx)? {
            return Ok(failed(failure));
        }
    }
    cx.object["status"]["form"] = cx.config("form");
    cx.object["metadata"]["annotations"]["sites.example.com/maps"] = json!(wanted_maps(&cx.object).join(" "));
    cx.object["status"]["observedGeneration"] = cx.object["metadata"]["generation"].clone();
    take_turn(cx)
}

fn count_widgets(cx: &mut Cx<'_>) -> Result<Option<Failure>, Pending> {
    let query = ListQuery {
        cluster: None,
        page: None,
        limit: MANY,
        projection: vec!["metadata.name".to_owned()],
        ..query(cx, WIDGETS, "Widget")
    };
    cx.object["status"]["widgets"] = match cx.list(query)? {
        Ok(widgets) => json!(widgets.len()),
        Err(failure) if failure.code == Code::ResourceExhausted => json!("many"),
        Err(failure) => return Ok(Some(failure)),
    };
    Ok(None)
}

fn keep_maps(cx: &mut Cx<'_>) -> Result<Option<Failure>, Pending> {
    let maps = match cx.list(own_maps(cx))? {
        Ok(maps) => maps,
        Err(failure) => return Ok(Some(failure)),
    };
    let names = wanted_maps(&cx.object);
    let named = |name: &str| maps.iter().find(|map| map["metadata"]["name"] == *name);
    let mut acts: Vec<Act> = names
        .iter()
        .filter_map(|name| match named(name) {
            None => Some(create(cx, name)),
            Some(map) if map["data"]["value"] != cx.object["spec"]["value"] => Some(patch(cx, map)),
            Some(map) if map["metadata"]["annotations"][SEEN] != seen(cx) => Some(mark(cx, map)),
            Some(_) => None,
        })
        .collect();
    let extra = |map: &&Value| !names.contains(&text(&map["metadata"]["name"]));
    acts.extend(maps.iter().filter(extra).map(delete));
    let answers = cx.all(acts)?;
    let namespace = text(&cx.object["metadata"]["namespace"]);
    for name in names.iter().filter(|name| named(name).is_none()) {
        // If somebody else's stands there, this one waits until it does not.
        let _ = cx.object("v1", "ConfigMap", &namespace, name)?;
    }
    let fails = |failure: &Failure| !matches!(failure.code, Code::AlreadyExists | Code::NotFound);
    Ok(answers.into_iter().filter_map(Result::err).find(fails))
}

fn drain(cx: &mut Cx<'_>) -> Result<Option<Failure>, Pending> {
    if cx.object["spec"]["drain"] != true {
        return Ok(None);
    }
    let query = ListQuery {
        cluster: None,
        page: None,
        field_selector: Some(format!("spec.nodeName={}", text(&cx.object["metadata"]["name"]))),
        ..query(cx, "v1", "Pod")
    };
    let pods = match cx.list(query)? {
        Ok(pods) => pods,
        Err(failure) => return Ok(Some(failure)),
    };
    for pod in &pods {
        let eviction = Eviction {
            object: reference(pod),
            precondition: precondition(pod),
            grace_period_seconds: None,
        };
        if let Err(failure) = cx.act(Act::Evict(eviction))?
            && failure.code != Code::NotFound
        {
            return Ok(Some(failure));
        }
    }
    Ok(None)
}

/// Tries what the binding does not grant.
fn pry(cx: &mut Cx<'_>) -> Result<Option<Failure>, Pending> {
    if cx.object["spec"]["pry"] == true {
        let name = format!("pried-{}", text(&cx.object["metadata"]["uid"]));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": ELSEWHERE, "name": name, "labels": {"pried": "yes"}}});
        let _ = cx.act(Act::create(map.to_string()))?;
    }
    Ok(None)
}

/// Takes the turn of the namespace when it wants it, and gives it back in the pass after.
fn take_turn(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    let wanted = cx.object["spec"]["turn"].clone();
    if cx.object["status"]["holds"] == true {
        cx.object["status"]["holds"] = json!(false);
        return Ok(Next::After(100));
    }
    if wanted.is_null() || cx.object["status"]["turn"] == wanted {
        return Ok(Next::Settled(None));
    }
    if cx.ask(Question::Lock("turn".to_owned()))? != Ok(json!("held")) {
        cx.notes.push("busy".to_owned());
        return Ok(Next::After(700));
    }
    let query = ListQuery {
        cluster: None,
        page: None,
        latest: true,
        ..query(cx, SITES, "Site")
    };
    match cx.list(query)? {
        Err(failure) => return Ok(failed(failure)),
        Ok(sites) if sites.iter().any(|site| site["status"]["holds"] == true) => {
            return Ok(Next::After(1_000));
        }
        Ok(_) => {}
    }
    cx.object["status"]["holds"] = json!(true);
    cx.object["status"]["turn"] = wanted;
    Ok(Next::After(2_000))
}

/// Ends its ConfigMaps, and lets go once a fresh look shows none.
fn leave(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    let query = ListQuery {
        cluster: None,
        page: None,
        latest: true,
        ..own_maps(cx)
    };
    let maps = match cx.list(query)? {
        Ok(maps) => maps,
        Err(failure) => return Ok(failed(failure)),
    };
    if maps.is_empty() {
        cx.remove_finalizer(FINALIZER);
        return Ok(Next::Settled(None));
    }
    let answers = cx.all(maps.iter().map(delete).collect())?;
    let failure = answers.into_iter().filter_map(Result::err).next();
    Ok(failure.map_or(Next::After(300), failed))
}

fn query(cx: &Cx<'_>, api_version: &str, kind: &str) -> ListQuery {
    ListQuery {
        namespace: Some(text(&cx.object["metadata"]["namespace"])),
        ..ListQuery::all(Kind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }
}

fn own_maps(cx: &Cx<'_>) -> ListQuery {
    ListQuery {
        cluster: None,
        page: None,
        label_selector: Some(format!("site={}", text(&cx.object["metadata"]["name"]))),
        ..query(cx, "v1", "ConfigMap")
    }
}

fn wanted_maps(site: &Value) -> Vec<String> {
    let name = text(&site["metadata"]["name"]);
    let count = site["spec"]["maps"].as_u64().unwrap_or(0);
    (0..count).map(|n| format!("{name}-{n}")).collect()
}

fn create(cx: &Cx<'_>, name: &str) -> Act {
    let metadata = &cx.object["metadata"];
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": cx.object["spec"]["value"]},
        "metadata": {"namespace": metadata["namespace"], "name": name,
            "labels": {"site": metadata["name"], "owner": metadata["uid"]}}});
    Act::create(map.to_string())
}

/// The patch says which version it is meant for.
fn patch(cx: &Cx<'_>, map: &Value) -> Act {
    let data = json!({"value": cx.object["spec"]["value"], "on": map["metadata"]["resourceVersion"]});
    Act::Patch(ObjectPatch {
        object: reference(map),
        precondition: precondition(map),
        subresource: None,
        patch: json!({"data": data}).to_string().into(),
    })
}

/// Notes on a ConfigMap what its Site wanted when it was looked at. That may go onto any version.
fn mark(cx: &Cx<'_>, map: &Value) -> Act {
    let precondition = Precondition {
        resource_version: None,
        ..precondition(map)
    };
    Act::Patch(ObjectPatch {
        object: reference(map),
        precondition,
        subresource: None,
        patch: json!({"metadata": {"annotations": {SEEN: seen(cx)}}})
            .to_string()
            .into(),
    })
}

/// Whether a change is such a note.
pub fn is_mark(change: &Change) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return false;
    };
    change.place.0 == "ConfigMap" && before.tree()["data"] == after.tree()["data"]
}

fn seen(cx: &Cx<'_>) -> String {
    cx.object["metadata"]["generation"].to_string()
}

fn delete(map: &Value) -> Act {
    Act::Delete(ObjectDelete {
        object: reference(map),
        precondition: precondition(map),
        grace_period_seconds: None,
        propagation_policy: None,
    })
}

fn reference(object: &Value) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
        },
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        name: text(&object["metadata"]["name"]),
    }
}

fn precondition(object: &Value) -> Precondition {
    Precondition {
        uid: text(&object["metadata"]["uid"]),
        resource_version: object["metadata"]["resourceVersion"].as_str().map(str::to_owned),
    }
}

/// A Site as a person would create it.
pub fn new_object(nth: u64) -> Value {
    json!({"spec": {"maps": nth % 3, "value": format!("v{nth}")}})
}

/// What a person changes of what is wanted.
pub fn edit(nth: u64) -> Value {
    let spec = match nth % 8 {
        0 => json!({"maps": nth / 8 % 4}),
        1 => json!({"value": format!("v{nth}")}),
        2 => json!({"drain": true}),
        3 => json!({"drain": null, "maps": 0}),
        4 => json!({"faulty": true}),
        5 => json!({"faulty": null}),
        6 => json!({"pry": true}),
        _ => json!({"turn": nth}),
    };
    json!({"spec": spec})
}

fn wants_turn(site: &Value) -> bool {
    !site["spec"]["turn"].is_null() && site["status"]["turn"] != site["spec"]["turn"]
}

/// Why a Site is not as it is wanted, under this binding; none if it is.
pub fn unsettled(store: &Store, at: &Place, site: &Value, binding: &Binding) -> Option<&'static str> {
    if is_faulty(site) {
        return (!is_quarantined(site)).then_some("faults and is not quarantined");
    }
    if !site["metadata"]["deletionTimestamp"].is_null() {
        return Some("is still being deleted");
    }
    let beside = |kind: &str| {
        let of_kind = |place: &Place| place.0 == kind && place.1 == at.1;
        let all = store.all().filter(move |(place, _)| of_kind(place));
        all.map(|(_, object)| object.tree()).collect::<Vec<_>>()
    };
    let widgets = match beside("Widget").len() {
        few if few <= MANY as usize => json!(few),
        _ => json!("many"),
    };
    let wanted = wanted_maps(site);
    let maps = beside("ConfigMap");
    let own = |map: &&Value| map["metadata"]["labels"]["site"] == *at.2;
    let fits = |map: &Value| {
        wanted.contains(&text(&map["metadata"]["name"])) && map["data"]["value"] == site["spec"]["value"]
    };
    let there = |name: &String| maps.iter().any(|map| map["metadata"]["name"] == **name);
    // A Site that faults while it has its turn keeps it.
    let held_up = beside("Site")
        .iter()
        .any(|site| is_faulty(site) && site["status"]["holds"] == true);
    let pod = |pod: &Value| pod["spec"]["nodeName"] == *at.2;
    let status = &site["status"];
    let lifecycle = binding.policy(Role::Lifecycle).map(form);
    if status["form"].as_u64() != lifecycle {
        Some("had no pass under the form of its policy that is bound")
    } else if status["observedGeneration"] != site["metadata"]["generation"] {
        Some("has not seen what is wanted")
    } else if status["widgets"] != widgets {
        Some("has not counted its Widgets")
    } else if !maps.iter().filter(own).all(fits) || !wanted.iter().all(there) {
        Some("has not the ConfigMaps that it wants")
    } else if site["spec"]["drain"] == true && beside("Pod").iter().any(pod) {
        Some("has not drained its Pods")
    } else if status["holds"] == true || (wants_turn(site) && !held_up) {
        Some("has not had its turn")
    } else {
        is_quarantined(site).then_some("is quarantined and does not fault")
    }
}

/// The node of a new Pod: a Site, or one that nobody drains.
pub fn node(nth: u64) -> &'static str {
    ["s0", "s1", KEPT][(nth % 3) as usize]
}
