//! Requests to the services of OpenStack.

use polity_driver_sdk::prelude::*;

use crate::error::{Does, refused};

/// The version of nova's API. 2.75 is the first version that refuses unknown filters. Since 2.69 nova shows servers of cells
/// that are down.
const COMPUTE_VERSION: &str = "compute 2.75";

/// The beginning of the paths of nova. The host finds the roots of the services, and the driver says which version of their
/// APIs it speaks.
pub(crate) const COMPUTE: &str = "v2.1";

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

    /// The name of the service in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Compute => "nova",
            Service::Network => "neutron",
            Service::Image => "glance",
        }
    }

    /// The fields in which the service describes a refusal. `error` comes from the token check in front of each service.
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

    /// The request with its headers. Keeps these paths of the response, and the paths of a refusal.
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
            // Without this header, glance answers with an HTML page if there is no image.
            .header("accept", "application/json")
            .keep(keep.iter().copied())
            .keep(refusals)
            .keep(page)
    }
}

/// Sends a read. Every status other than 2xx is a failure.
pub(crate) async fn read(
    cx: &Context,
    service: Service,
    request: Request,
    keep: &[&str],
) -> Result<Response, Failure> {
    send(cx, service, Does::Read, request, keep).await
}

/// Sends a change or a create. Every status other than 2xx is a failure.
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
    if seen.is_success() {
        Ok(seen)
    } else {
        Err(refused(service, does, &seen))
    }
}
