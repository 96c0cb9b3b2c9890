//! Servers of nova.

use polity_driver_sdk::prelude::*;

use crate::api::{COMPUTE, Service, read};
use crate::error::{Does, unreadable};
use crate::id::{given, is_id};
use crate::list::List;
use crate::time::unix_ms;

/// The metadata of a server that names its owner: the object for which it was booted.
pub(crate) const OWNER: &str = "polity-owner";
/// The metadata of a server that names its tenant.
pub(crate) const TENANT: &str = "polity-tenant";
/// The metadata of a server that has the key of its create.
pub(crate) const KEY: &str = "polity-key";
/// The status of a server whose cell is down. Nova then knows little about the server.
const UNKNOWN: &str = "UNKNOWN";
/// The fields of a server that are kept.
const FIELDS: [&str; 9] = [
    "id",
    "name",
    "status",
    "created",
    "OS-EXT-STS:task_state",
    "fault.message",
    "metadata.polity-owner",
    "metadata.polity-tenant",
    "metadata.polity-key",
];
/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) task_state: String,
    /// When nova began to create it, in milliseconds since 1970.
    pub(crate) created: Option<u64>,
    /// What failed. Nova shows it for a server in error.
    pub(crate) fault: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) key: Option<String>,
}

impl Server {
    /// Whether the marks of the server name the operation's owner and tenant.
    pub(crate) fn is_own(&self, cx: &Context) -> bool {
        self.owner.as_deref() == Some(cx.owner()) && self.is_of_tenant(cx)
    }

    /// Whether the mark of the server names the operation's tenant.
    pub(crate) fn is_of_tenant(&self, cx: &Context) -> bool {
        self.tenant.as_deref() == Some(cx.tenant())
    }

    /// Whether the server is being removed.
    pub(crate) fn is_leaving(&self) -> bool {
        let removes = ["deleting", "soft-deleting"].contains(&self.task_state.as_str());
        removes || ["DELETED", "SOFT_DELETED"].contains(&self.status.as_str())
    }
}

/// The server with this id. Fails if the server does not belong to the operation's owner.
pub(crate) async fn own<'a>(cx: &Context, id: &'a str) -> Result<(Server, Owned<'a>), Failure> {
    let server = by_id(cx, id).await?;
    let owned = cx.owned(id, server.owner.as_deref())?;
    if server.is_of_tenant(cx) {
        Ok((server, owned))
    } else {
        Err(failure(
            Code::PermissionDenied,
            format!("server {id} belongs to another tenant"),
        ))
    }
}

/// The server with this id. It may belong to any owner.
pub(crate) async fn by_id(cx: &Context, id: &str) -> Result<Server, Failure> {
    let id = given(id, "server")?;
    let request = Request::get("compute").path([COMPUTE, "servers", id]);
    let keep = FIELDS.map(|field| format!("server.{field}"));
    let keep: Vec<&str> = keep.iter().map(String::as_str).collect();
    let seen = read(cx, Service::Compute, request, &keep).await?;
    let row = &seen.body["server"];
    if row["id"] != id {
        return Err(unreadable(
            Service::Compute,
            Does::Read,
            &seen,
            "it shows another server",
        ));
    }
    if row["status"] == UNKNOWN {
        return Err(cell_is_down(id));
    }
    server(row).ok_or_else(|| unreadable(Service::Compute, Does::Read, &seen, "it has no server"))
}

/// The servers with this name, of any owner. If none of them is wanted, then no wanted server exists.
pub(crate) async fn of_name(
    cx: &Context,
    name: &str,
    is_wanted: impl Fn(&Server) -> bool,
) -> Result<Vec<Server>, Failure> {
    let servers = filtered(cx, name).await?;
    if !servers.iter().any(is_wanted) {
        cells_are_up(cx).await?;
    }
    Ok(servers)
}

/// As [`of_name`], for a caller that expects no wanted server: both reads are made together.
pub(crate) async fn of_unused_name(
    cx: &Context,
    name: &str,
    is_wanted: impl Fn(&Server) -> bool,
) -> Result<Vec<Server>, Failure> {
    let (servers, cells) = join(filtered(cx, name), cells_are_up(cx)).await;
    let servers = servers?;
    if !servers.iter().any(is_wanted) {
        cells?;
    }
    Ok(servers)
}

/// Fails if nova does not reach a cell with servers of the project: a list with a filter silently leaves those servers out.
///
/// Nova shows them, with the status `UNKNOWN` and before all others, only in a list without filter and without paging
/// (`_is_cell_down_supported` in `nova/api/openstack/compute/servers.py`, `get_all` in `nova/compute/api.py`). So one page of
/// that list is read, and no other: the pages after it show no such server. If the page is full (`max_limit` of nova, 1,000
/// servers), nova has no room for them on it either. A boot is then still refused if neutron shows one of its ports plugged in.
async fn cells_are_up(cx: &Context) -> Result<(), Failure> {
    let servers = List {
        service: Service::Compute,
        path: &[COMPUTE, "servers"],
        rows: "servers",
        query: &[],
        keep: &["id", "status"],
    };
    for row in servers.first_page(cx).await? {
        let id = row["id"]
            .as_str()
            .filter(|id| is_id(id))
            .ok_or_else(unreadable_row)?;
        if row["status"] == UNKNOWN {
            return Err(cell_is_down(id));
        }
    }
    Ok(())
}

/// The servers with this name. Nova can filter by metadata for administrators only, and drops such a filter of others silently
/// (`remove_invalid_options`), so the marks are compared here.
async fn filtered(cx: &Context, name: &str) -> Result<Vec<Server>, Failure> {
    let rows = List {
        service: Service::Compute,
        path: &[COMPUTE, "servers", "detail"],
        rows: "servers",
        query: &[("name", &exactly(name))],
        keep: &FIELDS,
    }
    .read(cx)
    .await?;
    let mut servers = Vec::new();
    for row in rows {
        if row["status"] == UNKNOWN {
            return Err(cell_is_down(row["id"].as_str().unwrap_or("")));
        }
        servers.push(server(&row).ok_or_else(unreadable_row)?);
    }
    servers.retain(|server| server.name == name);
    Ok(servers)
}

/// A server, if the row has all fields that every server has.
fn server(row: &Value) -> Option<Server> {
    let text = |field: &str| row.get(field).and_then(Value::as_str).map(str::to_owned);
    let mark = |name: &str| row.get("metadata")?.get(name)?.as_str().map(str::to_owned);
    Some(Server {
        id: text("id").filter(|id| is_id(id))?,
        name: text("name")?,
        status: text("status")?,
        task_state: text("OS-EXT-STS:task_state").unwrap_or_default(),
        created: text("created").and_then(|created| unix_ms(&created)),
        fault: row["fault"]["message"].as_str().map(str::to_owned),
        owner: mark(OWNER),
        tenant: mark(TENANT),
        key: mark(KEY),
    })
}

/// A regular expression for nova that matches only this name. All databases of nova read it in the same way: letters and digits
/// match themselves, and every other ASCII character has a backslash in front.
fn exactly(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('^');
    for character in name.chars() {
        let is_plain = character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
        if character.is_ascii() && !is_plain {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('$');
    quoted
}

fn cell_is_down(id: &str) -> Failure {
    let message = format!(
        "nova does not reach the cell of server {id:?}, so the name and the owner of the server are not known: the operation can go on when the cell is up again"
    );
    failure(Code::Unavailable, message)
}

fn unreadable_row() -> Failure {
    failure(
        Code::Internal,
        "nova lists a server without an id, a name or a status",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_for_the_regular_expressions_of_nova() {
        assert_eq!(exactly("edge-1_a"), "^edge-1_a$");
        assert_eq!(exactly("a.b*(c)|^$[x]\\"), r"^a\.b\*\(c\)\|\^\$\[x\]\\$");
        assert_eq!(exactly("ä'\""), "^ä\\'\\\"$");
    }
}
