//! What every adapter gets for free.

use std::sync::Arc;

use polity_core::call::{CloudRequest, PendingEntry, Session};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Answer, CredentialPlan, Doubt};

use crate::check::{CatalogueError, Checked};
use crate::cloud::{BoxFuture, Cloud};
use crate::sealed::{SecretResolver, unseal};
use crate::sim::SimCloud;

/// A cloud behind the checks that do not depend on which cloud it is.
///
/// # Flow
///
/// Look the operation up, check the arguments against its schema, unseal, perform, scrub. A request that fails a check
/// never reaches the cloud: its failure has `effect: none`.
pub struct Front<C> {
    cloud: C,
    checked: Checked,
    secrets: Arc<dyn SecretResolver>,
}

impl<C: Cloud> Front<C> {
    /// Compiles the catalogue's schemas, once.
    pub fn new(cloud: C, secrets: Arc<dyn SecretResolver>) -> Result<Self, CatalogueError> {
        let checked = Checked::new(cloud.catalogue().clone())?;
        Ok(Front {
            cloud,
            checked,
            secrets,
        })
    }

    async fn checked_perform(&self, mut request: CloudRequest) -> Answer {
        let operation = self.checked.request(&request)?;
        let redactor = unseal(
            operation,
            &mut request.arguments,
            &request.session,
            &*self.secrets,
        )
        .await?;
        redactor.answer(self.cloud.perform(request).await)
    }
}

impl<C: Cloud> Cloud for Front<C> {
    fn catalogue(&self) -> &Arc<Catalogue> {
        self.checked.catalogue()
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        Box::pin(self.checked_perform(request))
    }

    fn settle<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Doubt> {
        self.cloud.settle(session, entry)
    }

    fn credential<'a>(&'a self, plan: &'a CredentialPlan, owner: &'a str) -> BoxFuture<'a, Answer> {
        match self.checked.credential(plan) {
            Ok(_) => self.cloud.credential(plan, owner),
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        }
    }

    fn mint<'a>(&'a self, kind: &'a str, ttl: u64) -> BoxFuture<'a, Answer> {
        self.cloud.mint(kind, ttl)
    }

    fn simulation(&self) -> Option<&SimCloud> {
        self.cloud.simulation()
    }
}
