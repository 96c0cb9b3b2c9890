//! The service objects of a server.

use polity_driver_sdk::prelude::*;

use crate::moid::{Moid, is_id};
use crate::soap::Call;

/// The first version of the API in which a VM shows when it was created.
const SAYS_WHEN_CREATED: (u32, u32) = (6, 7);

/// The service objects that the driver uses. Their ids differ from server to server.
pub(crate) struct Services {
    /// Reads properties.
    pub(crate) property_collector: Moid,
    /// Searches the inventory.
    pub(crate) search_index: Moid,
    /// Knows the recent tasks.
    pub(crate) task_manager: Moid,
    /// Whether `config.createDate` is a property.
    pub(crate) says_when_created: bool,
}

impl Services {
    /// The service objects from the login, or else from the server. The server answers this read also without a session, so the
    /// answer does not show whether the session is valid.
    pub(crate) async fn of(cx: &Context) -> Result<Self, Failure> {
        let session = cx.session();
        let said = |name: &str| session.get(name)?.as_str();
        if let Some(services) = Services::all(said) {
            return Ok(services);
        }
        let root = Moid::new("ServiceInstance", "ServiceInstance");
        let names = [
            "propertyCollector",
            "searchIndex",
            "taskManager",
            "about.apiVersion",
        ];
        let content = Call::new("RetrieveServiceContent", &root)
            .keep(names.map(|name| format!("returnval.{name}")))
            .read(cx)
            .await?;
        Ok(Services::read(|name| {
            let name = if name == "apiVersion" {
                "about/apiVersion"
            } else {
                name
            };
            Some(tree::text(&content, &format!("returnval/{name}")))
        }))
    }

    /// The service objects; `None` if one of them is missing.
    fn all<'a>(said: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let names = ["propertyCollector", "searchIndex", "taskManager", "apiVersion"];
        let is_complete = names.iter().all(|name| said(name).is_some_and(is_id));
        is_complete.then(|| Services::read(said))
    }

    /// The service objects. If an id is missing, the id of most servers is used.
    fn read<'a>(said: impl Fn(&str) -> Option<&'a str>) -> Self {
        let service = |kind: &str, name: &str, usual: &str| {
            let id = said(name).filter(|id| is_id(id));
            Moid::new(kind, id.unwrap_or(usual))
        };
        Services {
            property_collector: service("PropertyCollector", "propertyCollector", "propertyCollector"),
            search_index: service("SearchIndex", "searchIndex", "SearchIndex"),
            task_manager: service("TaskManager", "taskManager", "TaskManager"),
            says_when_created: is_at_least(said("apiVersion").unwrap_or(""), SAYS_WHEN_CREATED),
        }
    }
}

/// Whether a version such as `8.0.1.0` is not earlier than `least`.
fn is_at_least(version: &str, least: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let Some(major) = numbers.next() else {
        return false;
    };
    (major, numbers.next().unwrap_or(0)) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, expected) in [
            ("6.5", false),
            ("6.7", true),
            ("6.10", true),
            ("10.0", true),
            ("8.0.1.0", true),
            ("7", true),
            ("6", false),
            ("", false),
            ("x.9", false),
        ] {
            assert_eq!(is_at_least(version, SAYS_WHEN_CREATED), expected, "{version}");
        }
    }

    #[test]
    fn a_session_that_does_not_say_all_is_not_used() {
        let said =
            |id: &'static str| move |name: &str| (name != "taskManager" || !id.is_empty()).then_some("x-1");
        assert!(Services::all(said("")).is_none());
        let services = Services::all(said("x")).unwrap();
        assert_eq!(services.task_manager, Moid::new("TaskManager", "x-1"));
        assert!(Services::all(|_| Some("<x>")).is_none());
    }

    #[test]
    fn what_a_server_does_not_say_is_what_most_say() {
        let services = Services::read(|_| None);
        assert_eq!(services.search_index, Moid::new("SearchIndex", "SearchIndex"));
    }
}
