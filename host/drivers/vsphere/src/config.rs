//! The configuration of a connection.

use polity_driver_sdk::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of a connection to a vCenter: the defaults for arguments that a clone leaves out.
///
/// Paths are inventory paths. A path that begins with a slash is complete (`/DC0/vm/team-a`). Any other path is below its
/// branch of the datacenter (`team-a`). In a name on a path, a slash is written `%2f`, a backslash `%5c`, and a percent
/// sign `%25`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The path of the datacenter: `DC0`.
    pub datacenter: Option<String>,
    /// The folder of new VMs, below `vm`. The default is `vm` itself. The VM of a clone in doubt is looked for in the folder
    /// that is configured at the time of the look, so change this only when no clone is in doubt.
    pub folder: Option<String>,
    /// The datastore of the disks of new VMs, below `datastore`. The default is the datastore of the template.
    pub datastore: Option<String>,
    /// The resource pool of new VMs, below `host`: `cluster-1/Resources/team-a`, or a cluster or host for its root pool.
    pub resource_pool: Option<String>,
    /// The folder of networks, below `network`. The default is `network` itself. A VM shows only the names of its networks, so
    /// all networks of clones must be in one folder.
    pub network_folder: Option<String>,
    /// The names of the networks of new VMs, in order. If there are none, VMs keep the interfaces of the template.
    pub networks: Vec<String>,
}

/// The argument, or else the default. An empty text counts as missing.
pub(crate) fn or_default<'a>(argument: &'a str, default: &'a Option<String>) -> Option<&'a str> {
    let given = Some(argument).filter(|text| !text.is_empty());
    given.or(default.as_deref()).filter(|text| !text.is_empty())
}

impl Config {
    /// The configuration of the operation's connection.
    pub(crate) fn of(cx: &Context) -> Result<Self, Failure> {
        cx.config()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_default_and_nothing_else_is_known() {
        assert_eq!(
            serde_json::from_value::<Config>(json!({})).unwrap(),
            Config::default()
        );
        assert!(serde_json::from_value::<Config>(json!({"resourcepool": "p"})).is_err());
    }

    #[test]
    fn an_empty_text_names_nothing() {
        let default = Some("d".to_owned());
        assert_eq!(or_default("", &default), Some("d"));
        assert_eq!(or_default("a", &default), Some("a"));
        assert_eq!(or_default("", &Some(String::new())), None);
    }
}
