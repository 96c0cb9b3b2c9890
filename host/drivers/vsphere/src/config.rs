//! The configuration of a connection.

use polity_driver_sdk::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of a connection to a vCenter: what a clone uses where its arguments name nothing.
///
/// Paths are inventory paths. One that begins with a slash is whole (`/DC0/vm/team-a`), any other is below its branch
/// of the datacenter (`team-a`). In a name on a path, a slash is written `%2f`, a backslash `%5c`, and a percent sign
/// `%25`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The path of the datacenter: `DC0`.
    pub datacenter: Option<String>,
    /// The folder of new VMs, below `vm`. The default is `vm` itself. While a clone is in doubt, its VM is looked for
    /// in the folder that stands here then: change it when none is.
    pub folder: Option<String>,
    /// The datastore of their disks, below `datastore`. The default is that of the template.
    pub datastore: Option<String>,
    /// Their resource pool, below `host`: `cluster-1/Resources/team-a`, or a cluster or host for its root pool.
    pub resource_pool: Option<String>,
    /// The folder of networks, below `network`. The default is `network` itself. Networks are named, because a VM says
    /// no more of them; so all that clones use are in one folder.
    pub network_folder: Option<String>,
    /// The names of their networks, in order. Without any, VMs keep the interfaces of the template.
    pub networks: Vec<String>,
}

/// The argument, or else the default. An empty text names nothing.
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
