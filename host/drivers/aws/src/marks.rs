//! The tags with which a machine is marked: whose it is, and by which create it was made.

use polity_driver_sdk::prelude::*;

/// The name of the machine.
pub(crate) const NAME: &str = "Name";
/// The uid of the object to which the machine belongs.
pub(crate) const OWNER: &str = "polity.dev/owner";
/// The tenant of that object.
pub(crate) const TENANT: &str = "polity.dev/tenant";
/// The key of the create. The client token is the same; this one people see.
pub(crate) const KEY: &str = "polity.dev/key";

/// What a tag of a class must not begin with: ours, and those that only AWS sets.
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

/// Whether a class must not set this tag.
pub(crate) fn is_reserved(tag: &str) -> bool {
    tag == NAME || RESERVED.iter().any(|prefix| tag.starts_with(prefix))
}
