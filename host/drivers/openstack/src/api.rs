//! Requests to the services of OpenStack.

use polity_driver_sdk::prelude::*;

use crate::error::{Does, refused};

/// The version of nova's API: the first that refuses filters that it does not know (2.75), later than the first that
/// shows servers of cells that are down (2.69).
const COMPUTE_VERSION: &str = "compute 2.75";

/// A service of OpenStack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// nova
    Compute,
    /// neutron
    Network,
    /// glance
    Image,
}

impl Service {
    /// The name of its endpoint.
    pub(crate) fn endpoint(self) -> &'static str {
        match self {
            Service::Compute => "compute",
            Service::Network => "network",
            Service::Image => "image",
        }
    }

    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Compute => "nova",
            Service::Network => "neutron",
            Service::Image => "glance",
        }
    }

    /// The fields in which it puts a refusal. `error` is of the check of tokens in front of each.
    pub(crate) fn faults(self) -> &'static [&'static str] {
        match self {
            Service::Compute => &[
                "badRequest",
                "unauthorized",
                "forbidden",
                "itemNotFound",
                "badMethod",
                "conflictingRequest",
                "overLimit",
                "badMediaType",
                "computeFault",
                "notImplemented",
                "serviceUnavailable",
                "error",
            ],
            Service::Network => &["NeutronError", "error"],
            Service::Image => &["error"],
        }
    }

    /// The request with its headers. Kept are these paths, and those of a refusal.
    fn complete(self, request: Request, keep: &[&str]) -> Request {
        let request = match self {
            Service::Compute => request.header("openstack-api-version", COMPUTE_VERSION),
            Service::Network | Service::Image => request,
        };
        let refusals = self.faults().iter().map(|fault| format!("{fault}.message"));
        let page = [
            "NeutronError.type",
            "message",
            "html.head.title",
            "html.body.$text",
        ];
        request
            // Else glance says with a page that there is no image.
            .header("accept", "application/json")
            .keep(keep.iter().copied())
            .keep(refusals)
            .keep(page)
    }
}

/// Sends a read. Anything but success is a failure.
pub(crate) async fn read(
    cx: &Context,
    service: Service,
    request: Request,
    keep: &[&str],
) -> Result<Response, Failure> {
    send(cx, service, Does::Read, request, keep).await
}

/// Sends a change or a create. Anything but success is a failure.
pub(crate) async fn change(
    cx: &Context,
    service: Service,
    request: Request,
    keep: &[&str],
) -> Result<Response, Failure> {
    send(cx, service, Does::Change, request, keep).await
}

async fn send(
    cx: &Context,
    service: Service,
    does: Does,
    request: Request,
    keep: &[&str],
) -> Result<Response, Failure> {
    let seen = cx.send(service.complete(request, keep)).await?;
    match seen.is_success() {
        true => Ok(seen),
        false => Err(refused(service, does, &seen)),
    }
}
