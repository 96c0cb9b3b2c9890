//! Reads instances: by id, by name, or by filters.

use std::collections::BTreeSet;

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::instance::{FIELDS, Instance, LIVE, OF_DESCRIBE};
use crate::marks;
use crate::pages::{Filter, List};
use crate::provider_id::ProviderId;
use crate::query::Query;

/// The list of instances.
const INSTANCES: List = List {
    action: "DescribeInstances",
    element: "reservationSet",
    row: OF_DESCRIBE,
    fields: &FIELDS,
};

/// The pages of a list. Every instance in them can be read.
pub(crate) struct Seen {
    pages: Vec<Value>,
}

impl Seen {
    /// The instances, each once. An instance that is created while the pages are read may be in two of them.
    pub(crate) fn instances(&self) -> impl Iterator<Item = Instance<'_>> {
        let mut ids = BTreeSet::new();
        // Each page was checked before, so no page fails here.
        let rows = self.pages.iter().filter_map(|page| read(page).ok()).flatten();
        rows.filter(move |instance| ids.insert(instance.id()))
    }

    /// The only instance that was found, if there is one. If several were found, a person must decide.
    pub(crate) fn single<'a>(found: &[Instance<'a>], what: &str) -> Result<Option<Instance<'a>>, Failure> {
        if found.len() < 2 {
            return Ok(found.first().copied());
        }
        let ids: Vec<&str> = found.iter().map(|instance| instance.id()).take(8).collect();
        let message = format!(
            "{} instances match {what}, and only one may: remove or untag the others: {}",
            found.len(),
            ids.join(", ")
        );
        Err(failure(Code::OutOfRange, message))
    }
}

/// Reads the machine that the arguments name.
pub(crate) async fn machine(cx: &Context) -> Result<Seen, Failure> {
    if cx.has("providerID") {
        by_id(cx, cx.argument("providerID")).await
    } else {
        by_name(cx, cx.argument("name")).await
    }
}

/// The instance that the arguments name, among the instances that [`machine`] read. It belongs to the owner and is not gone.
pub(crate) fn meant<'a>(cx: &Context, seen: &'a Seen) -> Result<(Instance<'a>, Owned<'a>), Failure> {
    let (instance, owned) = known(cx, seen)?;
    if instance.is_gone() {
        return Err(no_machine(instance.id()));
    }
    Ok((instance, owned))
}

/// The same instance, which EC2 may show as gone.
pub(crate) fn known<'a>(cx: &Context, seen: &'a Seen) -> Result<(Instance<'a>, Owned<'a>), Failure> {
    let id = cx.has("providerID").then(|| cx.argument("providerID"));
    let found: Vec<Instance<'a>> = match id {
        Some(_) => seen.instances().collect(),
        None => of_name(cx, seen, cx.argument("name")),
    };
    let what = id.unwrap_or(cx.argument("name"));
    let instance = Seen::single(&found, what)?.ok_or_else(|| no_machine(what))?;
    // EC2 removes the tags of a terminated instance before it forgets the instance.
    if instance.is_gone() && instance.tag(marks::OWNER).is_none() {
        return Err(no_machine(what));
    }
    let owned = instance.owned(cx)?;
    // The same instance id with another zone is not the provider ID of this instance. A terminated instance may have no zone.
    let is_same = id.is_none_or(|id| instance.is_gone() || instance.provider_id().to_string() == id);
    if is_same {
        Ok((instance, owned))
    } else {
        Err(no_machine(what))
    }
}

/// The instance of a gone owner that the arguments name, among the instances that [`machine`] read.
pub(crate) fn orphan<'a>(cx: &Context, seen: &'a Seen) -> Result<Owned<'a>, Failure> {
    let id = cx.argument("providerID");
    let found: Vec<Instance<'a>> = seen.instances().collect();
    let is_meant = |instance: &Instance<'a>| !instance.is_gone() && instance.provider_id().to_string() == id;
    let instance = Seen::single(&found, id)?.filter(is_meant);
    instance.ok_or_else(|| no_machine(id))?.orphaned(cx)
}

/// The failure of a machine that does not exist, for any owner.
pub(crate) fn no_machine(what: &str) -> Failure {
    failure(Code::NotFound, format!("there is no machine {what}"))
}

/// The instance with a provider ID. It may belong to any owner.
async fn by_id(cx: &Context, id: &str) -> Result<Seen, Failure> {
    // A text that is not a provider ID of EC2 cannot name a machine.
    let id = ProviderId::parse(id).ok_or_else(|| no_machine(id))?;
    let query = Query::new(INSTANCES.action).field("InstanceId.1", id.instance);
    let page = query.keep(OF_DESCRIBE, &FIELDS).read(cx).await?;
    match read(&page)?.iter().find(|other| other.id() != id.instance) {
        None => Ok(Seen { pages: vec![page] }),
        Some(other) => {
            let what = format!("{} was requested, but it shows {}", id.instance, other.id());
            Err(INSTANCES.unreadable(&what))
        }
    }
}

/// The instances that may be the owner's machines of this name. The caller must still compare the rows: see [`of_name`].
pub(crate) async fn by_name(cx: &Context, name: &str) -> Result<Seen, Failure> {
    let (named, owned) = (tag(marks::NAME), tag(marks::OWNER));
    let filters = [
        (&*named, &[name][..]),
        (&*owned, &[cx.owner()][..]),
        ("instance-state-name", &LIVE[..]),
    ];
    all(cx, &filters).await
}

/// The instances of this name that belong to the owner and are not gone.
pub(crate) fn of_name<'a>(cx: &Context, seen: &'a Seen, name: &str) -> Vec<Instance<'a>> {
    let is = |instance: &Instance<'_>| {
        instance.tag(marks::NAME) == Some(name) && instance.is_of(cx) && !instance.is_gone()
    };
    seen.instances().filter(is).collect()
}

/// The name of the filter for a tag.
pub(crate) fn tag(key: &str) -> String {
    format!("tag:{key}")
}

/// All instances that match these filters.
pub(crate) async fn all(cx: &Context, filters: &[Filter<'_>]) -> Result<Seen, Failure> {
    let pages = INSTANCES.read(cx, filters).await?;
    pages.iter().try_for_each(|page| read(page).map(drop))?;
    Ok(Seen { pages })
}

/// The instances of an answer.
fn read(page: &Value) -> Result<Vec<Instance<'_>>, Failure> {
    INSTANCES.check(page)?;
    Instance::all(page, INSTANCES.row, INSTANCES.action, Effect::Read)
}
