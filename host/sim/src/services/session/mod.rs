//! Sessions in the manner of AWS: a credential plan leads to a principal in an account.

use std::time::Duration;

use polity_clouds::catalogue::Named;
use polity_clouds::{Opened, SessionRequest};
use polity_core::call::Session;
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Context, Service};
use crate::config::identity::{AccessKey, IamRole, IdentityProvider, Principal};
use crate::config::scenario::{ASSUME, ASSUME_BY_TOKEN, CALLER, Quirk};
use crate::config::{Account, SimConfig};
use crate::event::Call;
use crate::kernel::call::{Caller, text};
use crate::kernel::envelope::{LONGEST, lost, repeat};
use crate::kernel::faults::{Fault, Subject, glob};
use crate::kernel::kept::{Note, Table};

/// The limits of AWS: the shortest session of a role, and the longest session of a role that another role
/// assumes.
const SHORTEST_ROLE: u64 = 900_000;
const LONGEST_CHAINED: u64 = 3_600_000;

/// A session that was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Granted {
    account: String,
    expires: Option<u64>,
}

/// The principal that a chain has led to so far.
struct Who {
    principal: Principal,
    /// The role that was assumed. Other roles may trust it as well.
    role: Option<String>,
    expires: Option<u64>,
}

/// How long the calls took so far, and whether one of them was lost.
#[derive(Default)]
struct Waiting {
    millis: u64,
    lost: bool,
}

/// Decides who may call, and in which account.
pub(crate) struct Sessions {
    accounts: Vec<Account>,
    identity: IdentityProvider,
    /// The open sessions, by the token that callers present.
    granted: Table<String, Granted>,
}

impl Sessions {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Sessions {
            accounts: config.accounts.clone(),
            identity: config.identity.clone(),
            granted: Table::default(),
        }
    }

    /// The tokens of the sessions that have not expired.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.granted.keys().map(String::as_str)
    }

    /// The caller: the principal of a valid session of this cloud, or that of the host if there is no
    /// session.
    pub(crate) fn caller(&self, at: u64, session: &Session) -> Result<Caller, Failure> {
        let Some(token) = &session.handle else {
            let host = self.identity.host.as_ref();
            return Ok(Caller::new(session, host.map(|host| host.account.as_str())));
        };
        let granted = self.granted.get(token);
        let granted = granted.ok_or_else(|| unauthenticated("the session is not known here"))?;
        if granted.expires.is_some_and(|expires| at >= expires) {
            Err(unauthenticated("ExpiredToken: the session has expired"))
        } else {
            Ok(Caller::new(session, Some(&granted.account)))
        }
    }

    /// Opens a session for a plan. Returns the milliseconds until the answer arrives, and the answer;
    /// `deadline-exceeded` if it is lost.
    pub(crate) fn open(
        &mut self,
        cx: &mut Context<'_>,
        request: &SessionRequest,
    ) -> (u64, Result<Opened, Failure>) {
        let lost = (LONGEST, Err(lost("credential", true)));
        match cx.kernel.unreachable(cx.at) {
            Some(Some(failure)) => return (cx.kernel.answer_time(&request.owner), Err(failure)),
            Some(None) => return lost,
            None => {}
        }
        let mut waiting = Waiting::default();
        let opened = self.become_somebody(cx, request, &mut waiting);
        let after = waiting.millis + cx.kernel.answer_time(&request.owner);
        if waiting.lost || after >= LONGEST {
            return lost;
        }
        (after, opened.map(|who| self.grant(cx, who)))
    }

    fn grant(&mut self, cx: &mut Context<'_>, who: Who) -> Opened {
        let number = cx.kernel.number();
        let token = cx.kernel.uuid(&format!("session {number}"));
        let live = |granted: &Granted| granted.expires.is_none_or(|expires| expires > cx.at);
        self.granted.retain(live);
        let Principal { account, arn } = who.principal;
        let granted = Granted {
            account: account.clone(),
            expires: who.expires,
        };
        self.granted.insert(token.clone(), granted);
        cx.kernel.mark_dirty();
        Opened {
            token,
            attributes: json!({"principal": arn, "account": account}),
            expires: who.expires,
        }
    }

    fn become_somebody(
        &self,
        cx: &mut Context<'_>,
        request: &SessionRequest,
        waiting: &mut Waiting,
    ) -> Result<Who, Failure> {
        if let Some(name) = request.plan["account"].as_str() {
            let mut who = self.plain(name)?;
            self.ask_whose(cx, request, &mut who, waiting)?;
            return Ok(who);
        }
        let mut who = self.identity.host.clone().map(|principal| Who {
            principal,
            role: None,
            expires: None,
        });
        let chain = request.plan["chain"].as_array().cloned().unwrap_or_default();
        for (place, link) in chain.iter().enumerate() {
            let first = place == 0;
            who = Some(if let Some(link) = link.get("role") {
                self.assume(cx, request, link, who, waiting)?
            } else if !first {
                return Err(Failure::new(
                    Code::InvalidArgument,
                    format!("chain.{place}: only the first link can be something other than a role"),
                ));
            } else if let Some(link) = link.get("webIdentity") {
                self.assume_by_token(cx, request, link, waiting)?
            } else {
                self.fixed(cx, request)?
            });
        }
        let mut who = who.ok_or_else(no_credentials)?;
        self.ask_whose(cx, request, &mut who, waiting)?;
        Ok(who)
    }

    fn plain(&self, name: &str) -> Result<Who, Failure> {
        let account = self.accounts.iter().find(|account| account.name == name);
        let Account { name, principal } =
            account.ok_or_else(|| denied(format!("no access to account {name:?}")))?;
        let principal = Principal {
            account: name.clone(),
            arn: principal.clone(),
        };
        Ok(Who {
            principal,
            role: None,
            expires: None,
        })
    }

    /// The principal of the access key in the plan's Secret.
    fn fixed(&self, cx: &Context<'_>, request: &SessionRequest) -> Result<Who, Failure> {
        let secret = request.secrets.first().ok_or_else(no_credentials)?;
        // CAPA and Gardener spell them in two ways.
        let value = |key: &str| {
            let found = secret.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let keys = &self.identity.access_keys;
        let key = keys.iter().find(|key| key.id == value("AccessKeyID"));
        let key = key.ok_or_else(|| unauthenticated("InvalidClientTokenId: no such access key"))?;
        if !matches(key, value("SecretAccessKey")) {
            return Err(unauthenticated(
                "SignatureDoesNotMatch: not with that secret access key",
            ));
        }
        let expires = key.expires.map(|at| cx.kernel.start() + at.0);
        if expires.is_some_and(|expires| cx.at >= expires) {
            return Err(unauthenticated("ExpiredToken: the access key has expired"));
        }
        let principal = Principal {
            account: key.account.clone(),
            arn: key.arn.clone(),
        };
        Ok(Who {
            principal,
            role: None,
            expires,
        })
    }

    fn assume(
        &self,
        cx: &mut Context<'_>,
        request: &SessionRequest,
        link: &Value,
        source: Option<Who>,
        waiting: &mut Waiting,
    ) -> Result<Who, Failure> {
        let arn = text(link, "arn");
        self.call(cx, request, ASSUME, arn, waiting)?;
        let source = source.ok_or_else(no_credentials)?;
        let role = self.role(arn)?;
        let names = [Some(&source.principal.arn), source.role.as_ref()];
        let trusted = |pattern: &String| names.iter().flatten().any(|name| glob(pattern, name));
        if !role.trusts.iter().any(trusted) {
            let message = format!("{} is not authorized to assume {arn}", source.principal.arn);
            return Err(denied(message));
        }
        if role
            .external_id
            .as_deref()
            .is_some_and(|id| id != text(link, "externalId"))
        {
            return Err(denied(format!("{arn} is not assumed with that external id")));
        }
        let longest = match source.role {
            Some(_) => role.longest.0.min(LONGEST_CHAINED),
            None => role.longest.0,
        };
        let millis = seconds(link, "durationSeconds");
        if !(SHORTEST_ROLE..=longest).contains(&millis) {
            let message = format!("a session of {arn} lasts 900 to {} seconds", longest / 1_000);
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let session = link["sessionName"].as_str().unwrap_or("polity");
        Ok(assumed(role, session, Some(cx.at.saturating_add(millis))))
    }

    fn assume_by_token(
        &self,
        cx: &mut Context<'_>,
        request: &SessionRequest,
        link: &Value,
        waiting: &mut Waiting,
    ) -> Result<Who, Failure> {
        let arn = text(link, "arn");
        self.call(cx, request, ASSUME_BY_TOKEN, arn, waiting)?;
        let role = self.role(arn)?;
        let namespace = text(link, "namespace");
        let audiences = link["audiences"].as_array().cloned().unwrap_or_default();
        let trusts = role.web_identity.as_ref().is_some_and(|web| {
            web.namespaces.iter().any(|pattern| glob(pattern, namespace))
                && audiences.iter().any(|audience| *audience == web.audience)
        });
        if !trusts {
            return Err(denied(format!(
                "{arn} is not assumed with a token of {namespace:?}"
            )));
        }
        // AWS gives the longest session for a token, unless the caller asks for less.
        let millis = seconds(link, "expirationSeconds").min(LONGEST_CHAINED);
        Ok(assumed(role, namespace, Some(cx.at.saturating_add(millis))))
    }

    fn role(&self, arn: &str) -> Result<&IamRole, Failure> {
        let role = self.identity.roles.iter().find(|role| role.arn == arn);
        // AWS does not tell which roles exist.
        role.ok_or_else(|| denied(format!("not authorized to assume {arn}")))
    }

    /// The last call: whose are the credentials?
    fn ask_whose(
        &self,
        cx: &mut Context<'_>,
        request: &SessionRequest,
        who: &mut Who,
        waiting: &mut Waiting,
    ) -> Result<(), Failure> {
        let arn = who.principal.arn.clone();
        if let Some(account) = self.call(cx, request, CALLER, &arn, waiting)? {
            who.principal.account = account;
        }
        Ok(())
    }

    /// What the scenario does to one call. Returns the account that it sets instead of the true one, if any.
    fn call(
        &self,
        cx: &mut Context<'_>,
        request: &SessionRequest,
        operation: &str,
        arn: &str,
        waiting: &mut Waiting,
    ) -> Result<Option<String>, Failure> {
        let subject = Subject {
            operation,
            owner: &request.owner,
            tenant: "",
            about: Some(arn),
        };
        match cx.kernel.fault(cx.at, &subject) {
            Some(Fault::Fail {
                code,
                message,
                retry_after,
            }) => {
                let message = message.unwrap_or_else(|| format!("{operation} failed (by the scenario)"));
                let values = request.secrets.iter().flatten();
                let message = repeat(
                    message,
                    values.map(|(name, value)| (name.as_str(), value.as_str())),
                );
                return Err(Failure {
                    retry_after,
                    ..Failure::new(code, message)
                });
            }
            Some(Fault::FailAfterwards(code)) => {
                return Err(Failure::new(
                    code,
                    format!("{operation} failed (by the scenario)"),
                ));
            }
            Some(Fault::LoseRequest | Fault::LoseAnswer | Fault::HappenLate(_)) => waiting.lost = true,
            Some(Fault::AnswerAfter(after)) => waiting.millis += after,
            Some(Fault::Quirk(Quirk::LeadsTo(account))) => return Ok(Some(account)),
            _ => {}
        }
        Ok(None)
    }
}

impl Service for Sessions {
    /// No operations: sessions are opened when credentials are asked for, not by a request.
    fn operations(&self, _: Duration) -> Vec<Named> {
        Vec::new()
    }

    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![("sessions", &mut self.granted)]
    }

    fn perform(&mut self, _: &mut Context<'_>, call: &Call) -> Answer {
        Err(call.unknown())
    }
}

fn assumed(role: &IamRole, session: &str, expires: Option<u64>) -> Who {
    Who {
        principal: Principal {
            account: role.acts_in(),
            arn: role.assumed(session),
        },
        role: Some(role.arn.clone()),
        expires,
    }
}

fn matches(key: &AccessKey, secret: &str) -> bool {
    let digest = || -> String {
        let digest = Sha256::digest(secret.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    match &key.secret_sha256 {
        None => !secret.is_empty(),
        Some(expected) => *expected == digest(),
    }
}

/// A field in seconds, as milliseconds.
fn seconds(link: &Value, field: &str) -> u64 {
    link[field].as_u64().unwrap_or(0).saturating_mul(1_000)
}

fn denied(message: String) -> Failure {
    Failure::new(Code::PermissionDenied, format!("AccessDenied: {message}"))
}

fn unauthenticated(message: &str) -> Failure {
    Failure::new(Code::Unauthenticated, message)
}

fn no_credentials() -> Failure {
    unauthenticated("NoCredentialProviders: the host has no credentials of its own")
}

#[cfg(test)]
mod tests;
