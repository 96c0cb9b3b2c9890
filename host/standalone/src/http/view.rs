//! The forms in which objects are shown: as they are, as rows of a `Table`, or only their metadata; and the
//! forms of discovery.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    http::{
        query::Query,
        refusal::Refusal,
        table::{Include, definitions, partial, row},
        target::Target,
    },
    store::Object,
};

/// The form of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum View {
    Plain,
    Table(Include),
    Partial,
}

/// A form that an `Accept` header can name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Accepted {
    Json,
    Table,
    Partial,
    Discovery,
}

/// The forms that the client accepts and this server has, in the client's order. Without the header it is
/// JSON.
pub(crate) fn accepted(header: Option<&str>) -> Vec<Accepted> {
    let Some(header) = header.filter(|header| !header.is_empty()) else {
        return vec![Accepted::Json];
    };
    header.split(',').filter_map(form).collect()
}

fn form(range: &str) -> Option<Accepted> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let get = |name: &str| {
        parameters
            .iter()
            .find(|(n, _)| *n == name)
            .map_or("", |(_, value)| *value)
    };
    match (get("as"), get("g"), get("v")) {
        ("", _, _) => Some(Accepted::Json),
        ("Table", "meta.k8s.io", "v1") => Some(Accepted::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Some(Accepted::Partial)
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Accepted::Discovery),
        _ => None,
    }
}

impl View {
    /// The first form of objects that the client accepts; 406 if there is none.
    pub(crate) fn negotiate(accept: Option<&str>, query: &Query) -> Result<Self, Refusal> {
        let first = accepted(accept)
            .into_iter()
            .find(|form| *form != Accepted::Discovery);
        Ok(match first.ok_or_else(Refusal::not_acceptable)? {
            Accepted::Table => Self::Table(query.include()?),
            Accepted::Partial => Self::Partial,
            Accepted::Json | Accepted::Discovery => Self::Plain,
        })
    }
}

/// Shows stored objects to a client.
#[derive(Clone, Debug)]
pub(crate) struct Presenter {
    pub(crate) target: Target,
    pub(crate) view: View,
    pub(crate) now: Timestamp,
}

impl Presenter {
    /// Appends the JSON of one object.
    pub(crate) fn write_one(&self, object: &Object, header: bool, out: &mut Vec<u8>) {
        match self.view {
            View::Plain => self.write_plain(object, out),
            View::Partial => append(out, &partial(&self.served(object))),
            View::Table(include) => {
                let row = self.row(object, include);
                append(
                    out,
                    &self.table(vec![row], header, &object.at("metadata.resourceVersion")),
                );
            }
        }
    }

    /// Appends the JSON of a list; `metadata` is the list's.
    pub(crate) fn write_list(&self, objects: &[Object], metadata: &Value, out: &mut Vec<u8>) {
        let (api_version, kind) = match self.view {
            View::Plain => (self.target.api_version(), self.target.kind.list_kind.as_str()),
            View::Partial => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList"),
            View::Table(include) => {
                let rows = objects.iter().map(|object| self.row(object, include)).collect();
                let mut table = self.table(rows, true, &Value::Null);
                table["metadata"] = metadata.clone();
                return append(out, &table);
            }
        };
        let head = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata }).to_string();
        out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
        out.extend_from_slice(b",\"items\":[");
        for (index, object) in objects.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            self.write_one(object, false, out);
        }
        out.extend_from_slice(b"]}");
    }

    fn write_plain(&self, object: &Object, out: &mut Vec<u8>) {
        match self.target.kind.in_version(self.target.version(), object) {
            Some(converted) => append(out, &converted),
            None => out.extend_from_slice(object.json().as_bytes()),
        }
    }

    fn served(&self, object: &Object) -> Value {
        let converted = self.target.kind.in_version(self.target.version(), object);
        converted.unwrap_or_else(|| object.tree())
    }

    fn row(&self, object: &Object, include: Include) -> Value {
        let columns = &self.target.version().columns;
        if include == Include::Object {
            let mut shown = row(columns, &object.tree(), Include::None, self.now);
            shown["object"] = self.served(object);
            return shown;
        }
        row(columns, &object.tree(), include, self.now)
    }

    fn table(&self, rows: Vec<Value>, header: bool, revision: &Value) -> Value {
        let columns = if header {
            definitions(&self.target.version().columns)
        } else {
            Vec::new()
        };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": { "resourceVersion": revision },
            "columnDefinitions": columns,
            "rows": rows,
        })
    }
}

fn append(out: &mut Vec<u8>, value: &Value) {
    // Writing to memory cannot fail, and a `Value` has only string keys.
    serde_json::to_writer(out, value).expect("a JSON value is serialised to memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_served_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accepted(Some(kubectl)), [Accepted::Table, Accepted::Json]);
        let typed = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(View::negotiate(Some(typed), &Query::default()), Ok(View::Plain));
        let none = View::negotiate(Some("application/vnd.kubernetes.protobuf"), &Query::default());
        assert_eq!(none.map_err(|refusal| refusal.code), Err(406));
    }
}
