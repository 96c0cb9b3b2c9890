//! Properties of managed objects.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::fault;
use crate::moid::Moid;
use crate::services::Services;
use crate::soap::{Call, VERSION, flag, lacking, typed};

/// The most pages of a result. The server decides how many objects a page has; vCenter answers these reads in one page.
const PAGES: usize = 8;

const METHOD: &str = "RetrievePropertiesEx";

/// A property, and the kept parts of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Property {
    /// The dotted path: `config.extraConfig`.
    pub(crate) path: &'static str,
    /// The paths below the value that are kept.
    pub(crate) keep: &'static [&'static str],
    /// The first version of the API that has the property.
    version: &'static str,
}

impl Property {
    /// A property with a text.
    pub(crate) const fn text(path: &'static str) -> Self {
        Property::of(path, &["$text"])
    }

    /// A property of whose value these paths are kept.
    pub(crate) const fn of(path: &'static str, keep: &'static [&'static str]) -> Self {
        Property {
            path,
            keep,
            version: VERSION,
        }
    }

    /// The same property, which the API has since this version.
    pub(crate) const fn since(self, version: &'static str) -> Self {
        Property { version, ..self }
    }
}

/// The properties that are read from the objects of a type.
pub(crate) struct Set<'a> {
    /// The type.
    pub(crate) kind: &'a str,
    /// The properties.
    pub(crate) properties: &'a [Property],
}

/// An object with its properties that were read.
pub(crate) struct Object {
    /// The object.
    pub(crate) of: Moid,
    /// The path and the value of each property that it has.
    values: Vec<(String, Value)>,
    /// The path of each property that could not be read, and why.
    missing: Vec<(String, Failure)>,
}

impl Object {
    /// The value of a property; `None` if the object does not have it. Fails if the property could not be read.
    pub(crate) fn value(&self, property: &Property) -> Result<Option<&Value>, Failure> {
        if let Some((_, failure)) = self.missing.iter().find(|(path, _)| *path == property.path) {
            return Err(failure.clone());
        }
        let found = self.values.iter().find(|(path, _)| *path == property.path);
        Ok(found.map(|(_, value)| value))
    }

    /// The text of a property; empty if the object does not have it.
    pub(crate) fn text(&self, property: &Property) -> Result<&str, Failure> {
        Ok(self.value(property)?.map_or("", tree::own_text))
    }
}

/// Reads properties of one object. An object that does not exist is `not-found`.
pub(crate) async fn read(
    cx: &Context,
    services: &Services,
    of: &Moid,
    properties: &[Property],
) -> Result<Object, Failure> {
    let set = Set {
        kind: &of.kind,
        properties,
    };
    let objects = retrieve(cx, services, &[set], of, None).await?;
    let found = objects.into_iter().find(|object| object.of.id == of.id);
    found.ok_or_else(|| lacking(METHOD, &of.id, fault::Does::Read))
}

/// Reads properties of an object, and of the objects that one of its properties lists. Listed objects that no longer exist are
/// left out.
pub(crate) async fn read_through(
    cx: &Context,
    services: &Services,
    of: &Moid,
    through: &'static str,
    sets: &[Set<'_>],
) -> Result<Vec<Object>, Failure> {
    let traversal = typed("selectSet", "TraversalSpec").with_all([
        Element::text("type", &*of.kind),
        Element::text("path", through),
        flag("skip", false),
    ]);
    retrieve(cx, services, sets, of, Some(traversal)).await
}

async fn retrieve(
    cx: &Context,
    services: &Services,
    sets: &[Set<'_>],
    from: &Moid,
    traversal: Option<Element>,
) -> Result<Vec<Object>, Failure> {
    let is_list = traversal.is_some();
    let object_set = Element::new("objectSet")
        .with(from.element("obj"))
        .with(flag("skip", false))
        .with_all(traversal);
    let specification = Element::new("specSet")
        .with_all(sets.iter().map(property_set))
        .with(object_set)
        .with_all(is_list.then(|| flag("reportMissingObjectsInResults", true)));
    let collector = &services.property_collector;
    let mut call = Call::new(METHOD, collector)
        .with([specification, Element::new("options")])
        .keep(kept(sets));
    call.version = version(sets);
    let mut page = call.read(cx).await?;
    let mut objects = read_page(&page)?;
    for _ in 1..PAGES {
        let token = tree::text(&page, "returnval/token").to_owned();
        if token.is_empty() {
            return Ok(objects);
        }
        let mut call = Call::new("ContinueRetrievePropertiesEx", collector)
            .with([Element::text("token", token)])
            .keep(kept(sets));
        call.version = version(sets);
        page = call.read(cx).await?;
        objects.extend(read_page(&page)?);
    }
    // A list that is cut off must not count as complete.
    match tree::text(&page, "returnval/token") {
        "" => Ok(objects),
        _ => Err(failure(
            Code::Unavailable,
            format!("{METHOD} has more than {PAGES} pages"),
        )),
    }
}

fn property_set(set: &Set<'_>) -> Element {
    let paths = set
        .properties
        .iter()
        .map(|property| Element::text("pathSet", property.path));
    Element::new("propSet")
        .with(Element::text("type", set.kind))
        .with_all(paths)
}

/// The earliest version of the API that has all of these properties. The request uses no later version, so that older servers
/// understand it.
fn version(sets: &[Set<'_>]) -> &'static str {
    let all = sets.iter().flat_map(|set| set.properties);
    all.map(|property| property.version)
        .find(|version| *version != VERSION)
        .unwrap_or(VERSION)
}

fn kept(sets: &[Set<'_>]) -> Vec<String> {
    let fixed = [
        "token",
        "objects.obj",
        "objects.missingSet",
        "objects.propSet.name",
    ];
    let mut kept: Vec<String> = fixed.iter().map(|path| format!("returnval.{path}")).collect();
    for property in sets.iter().flat_map(|set| set.properties) {
        for path in property.keep {
            let path = format!("returnval.objects.propSet.val.{path}");
            if !kept.contains(&path) {
                kept.push(path);
            }
        }
    }
    kept
}

/// The objects of a page. If the session has ended, vCenter still answers with success, but reports each property as missing
/// because of `NotAuthenticated`. Then the whole page is a failure.
fn read_page(page: &Value) -> Result<Vec<Object>, Failure> {
    let objects: Result<Vec<Object>, Failure> = tree::all(page, "returnval/objects")
        .into_iter()
        .map(read_object)
        .collect();
    let objects = objects?;
    let mut missing = objects.iter().flat_map(|object| &object.missing);
    match missing.find(|(_, failure)| failure.code == Code::Unauthenticated) {
        Some((_, failure)) => Err(failure.clone()),
        None => Ok(objects),
    }
}

fn read_object(object: &Value) -> Result<Object, Failure> {
    let of = tree::first(object, "obj").and_then(Moid::read);
    let values = tree::all(object, "propSet").into_iter().filter_map(|property| {
        let value = tree::first(property, "val")?;
        Some((tree::text(property, "name").to_owned(), value.clone()))
    });
    let missing = tree::all(object, "missingSet").into_iter().map(|property| {
        let path = tree::text(property, "path");
        let fault = tree::first(property, "fault").unwrap_or(&Value::Null);
        (path.to_owned(), fault::of_missing(fault, path))
    });
    Ok(Object {
        of: of.ok_or_else(|| lacking(METHOD, "reference to its object", fault::Does::Read))?,
        values: values.collect(),
        missing: missing.collect(),
    })
}
