//! The options of a VM (`extraConfig`). The marks of its create are among them.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::properties::Property;
use crate::soap::typed;

/// The options of a VM.
pub(crate) const EXTRA_CONFIG: Property =
    Property::of("config.extraConfig", &["OptionValue.key", "OptionValue.value"]);

/// The uid of the owner of the VM.
pub(crate) const OWNER: &str = "polity.owner";
/// The tenant of the owner.
pub(crate) const TENANT: &str = "polity.tenant";
/// The key of the create that made the VM.
pub(crate) const KEY: &str = "polity.key";

/// The option that cloud-init reads as metadata.
pub(crate) const METADATA: &str = "guestinfo.metadata";
/// The encoding of the metadata.
pub(crate) const METADATA_ENCODING: &str = "guestinfo.metadata.encoding";
/// The option that cloud-init reads as user data. It is a secret, and the driver never sees it.
pub(crate) const USER_DATA: &str = "guestinfo.userdata";
/// The encoding of the user data.
pub(crate) const USER_DATA_ENCODING: &str = "guestinfo.userdata.encoding";
/// The encoding of both.
pub(crate) const BASE64: &str = "base64";

/// The options of a VM.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// The options in the value of [`EXTRA_CONFIG`].
    pub(crate) fn read(value: &Value) -> Self {
        let all = tree::all(value, "OptionValue").into_iter().map(|option| {
            let text = |name: &str| tree::text(option, name).to_owned();
            (text("key"), text("value"))
        });
        Options(all.collect())
    }

    /// The value of an option. As in vCenter, an empty value counts as missing. An option that occurs twice counts as missing
    /// too, because it is not clear which value is valid.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(known, _)| known == key);
        let (_, value) = found.next()?;
        let is_only = found.next().is_none() && !value.is_empty();
        is_only.then_some(value)
    }

    /// Whether the marks name this operation's owner and tenant.
    pub(crate) fn are_own(&self, cx: &Context) -> bool {
        let is_set = !cx.owner().is_empty();
        is_set && self.get(OWNER) == Some(cx.owner()) && self.get(TENANT).unwrap_or("") == cx.tenant()
    }

    /// Whether no create of any object has marked the VM.
    pub(crate) fn are_unmarked(&self) -> bool {
        let marks = [OWNER, TENANT, KEY];
        !self.0.iter().any(|(key, _)| marks.contains(&key.as_str()))
    }
}

/// An element that sets an option.
pub(crate) fn option(key: &str, value: impl Into<Text>) -> Element {
    typed("extraConfig", "OptionValue")
        .with(Element::text("key", key))
        .with(Element::text("value", value).attribute("xsi:type", "xsd:string"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_stands_there_twice_or_empty_is_none() {
        let option = |key: &str, value: &str| json!({"key": [{"$text": key}], "value": [{"$text": value}]});
        let options = Options::read(&json!({"OptionValue": [
            option("a", "1"), option("a", "2"), option("b", ""), option("c", "3"), {"key": [{"$text": "d"}]},
        ]}));
        let got = ["a", "b", "c", "d", "e"].map(|key| options.get(key));
        assert_eq!(got, [None, None, Some("3"), None, None]);
        assert!(options.are_unmarked());
        assert!(!Options::read(&json!({"OptionValue": [option(KEY, "")]})).are_unmarked());
    }
}
