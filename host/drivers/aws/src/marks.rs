//! The marks of a machine: tags that name its owner, and the create that made it. Its disks and network interfaces have the
//! same tags.

use polity_driver_sdk::prelude::*;

/// The name of the machine.
pub(crate) const NAME: &str = "Name";
/// The uid of the object to which the machine belongs.
pub(crate) const OWNER: &str = "polity.dev/owner";
/// The tenant of the owner.
pub(crate) const TENANT: &str = "polity.dev/tenant";
/// The key of the create, for people. The client token is the same key.
pub(crate) const KEY: &str = "polity.dev/key";

/// The prefixes that a tag of a class must not have: the prefix of the marks, and the prefix that only AWS sets.
const RESERVED: [&str; 2] = ["polity.dev/", "aws:"];

/// The marks of the machine that an operation creates.
pub(crate) fn of<'a>(cx: &'a Context, name: &'a str) -> [(&'static str, &'a str); 4] {
    [
        (NAME, name),
        (OWNER, cx.owner()),
        (TENANT, cx.tenant()),
        (KEY, cx.key()),
    ]
}

/// Whether a class must not set this tag. Its tag `Name` is not used.
pub(crate) fn is_reserved(tag: &str) -> bool {
    RESERVED.iter().any(|prefix| tag.starts_with(prefix))
}

/// The value of a tag of a row; `None` if the row has no such tag. A tag without a value has the empty value.
pub(crate) fn tag<'a>(row: &'a Value, key: &str) -> Option<&'a str> {
    let tags = tree::all(row, "tagSet/item");
    let found = tags.into_iter().find(|tag| tree::text(tag, "key") == key);
    found.map(|tag| tree::text(tag, "value"))
}

/// The id of a row as [`Owned`], if the marks of the row name the operation's owner and tenant.
pub(crate) fn owned<'a>(cx: &Context, id: &'a str, row: &Value) -> Result<Owned<'a>, Failure> {
    cx.owned(id, owner_in_tenant(cx, row))
}

/// The same, for the gone owner that the operation's arguments name.
pub(crate) fn orphaned<'a>(cx: &Context, id: &'a str, row: &Value) -> Result<Owned<'a>, Failure> {
    cx.orphan(id, owner_in_tenant(cx, row))
}

/// The owner in the marks of a row; `None` if it is of another tenant.
fn owner_in_tenant<'a>(cx: &Context, row: &'a Value) -> Option<&'a str> {
    let is_of_tenant = tag(row, TENANT) == Some(cx.tenant());
    tag(row, OWNER).filter(|_| is_of_tenant)
}
