//! Sessions: from a credential plan to somebody in an account.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::config::Account;
use crate::config::identity::{AccessKey, IamRole, Principal};
use crate::config::scenario::Trouble;
use crate::hypervisor::vm::Stamp;
use crate::kernel::call::{repeat, text};
use crate::kernel::draw::uuid;
use crate::kernel::faults::{Subject, glob};
use crate::{LONGEST, Sim, lost};

use polity_clouds::{Opened, SessionRequest};

/// The last call of every plan: whose the credentials are.
pub(crate) const CALLER: &str = "sts.get-caller-identity";
const ASSUME: &str = "sts.assume-role";
const ASSUME_BY_TOKEN: &str = "sts.assume-role-with-web-identity";

/// What AWS allows: the shortest session of a role, and the longest of a role that is assumed from a role.
const SHORTEST_ROLE: u64 = 900_000;
const LONGEST_CHAINED: u64 = 3_600_000;

/// A session that was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Granted {
    account: String,
    expires: Option<u64>,
}

/// Somebody on the way through a chain.
struct Who {
    principal: Principal,
    /// The role that was assumed, by which others trust it as well.
    role: Option<String>,
    expires: Option<u64>,
}

/// How long the calls took so far, and whether one of them was lost.
#[derive(Default)]
struct Waiting {
    millis: u64,
    lost: bool,
}

impl Sim {
    /// Opens a session as a plan says. Milliseconds until the answer is there, and the answer; `deadline-exceeded` of
    /// one that was lost.
    pub fn open_session(&mut self, now_ms: u64, request: &SessionRequest) -> (u64, Result<Opened, Failure>) {
        let now = self.advance(now_ms);
        match self.unreachable(now) {
            Some(Some(failure)) => return (self.sts_answer(request), Err(failure)),
            Some(None) => return (LONGEST, Err(lost("credential", true))),
            None => {}
        }
        let mut waiting = Waiting::default();
        let opened = self.become_somebody(now, request, &mut waiting);
        let after = waiting.millis + self.sts_answer(request);
        if waiting.lost || after >= LONGEST {
            return (LONGEST, Err(lost("credential", true)));
        }
        (after, opened.map(|who| self.grant(now, who)))
    }

    fn sts_answer(&mut self, request: &SessionRequest) -> u64 {
        let draw = self.world.draw(&request.owner);
        self.config.answers.pick(draw)
    }

    fn grant(&mut self, now: u64, who: Who) -> Opened {
        let number = self.world.number();
        let token = uuid(self.world.head.seed, &format!("session {number}"));
        let live = |granted: &Granted| granted.expires.is_none_or(|expires| expires > now);
        self.world.sessions.retain(live);
        let Principal { account, arn } = who.principal;
        let granted = Granted {
            account: account.clone(),
            expires: who.expires,
        };
        self.world.sessions.insert(token.clone(), granted);
        self.dirty = true;
        Opened {
            token,
            principal: arn,
            account,
            expires: who.expires,
        }
    }

    fn become_somebody(
        &mut self,
        now: u64,
        request: &SessionRequest,
        waiting: &mut Waiting,
    ) -> Result<Who, Failure> {
        if let Some(name) = request.plan["account"].as_str() {
            let mut who = self.plain(name)?;
            self.caller(now, request, &mut who, waiting)?;
            return Ok(who);
        }
        let mut who = self.config.identity.host.clone().map(|principal| Who {
            principal,
            role: None,
            expires: None,
        });
        let chain = request.plan["chain"].as_array().cloned().unwrap_or_default();
        for (place, link) in chain.iter().enumerate() {
            let first = place == 0;
            who = Some(if let Some(link) = link.get("role") {
                self.assume(now, request, link, who, waiting)?
            } else if !first {
                return Err(Failure::new(
                    Code::InvalidArgument,
                    format!("chain.{place}: only the first link is no role"),
                ));
            } else if let Some(link) = link.get("webIdentity") {
                self.assume_by_token(now, request, link, waiting)?
            } else {
                self.fixed(now, request)?
            });
        }
        let mut who = who.ok_or_else(no_credentials)?;
        self.caller(now, request, &mut who, waiting)?;
        Ok(who)
    }

    fn plain(&self, name: &str) -> Result<Who, Failure> {
        let account = self.config.accounts.iter().find(|account| account.name == name);
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

    /// The credentials of the plan's Secret.
    fn fixed(&self, now: u64, request: &SessionRequest) -> Result<Who, Failure> {
        let secret = request.secrets.first().ok_or_else(no_credentials)?;
        let value = |key: &str| secret.get(key).map(String::as_str).unwrap_or_default();
        let keys = &self.config.identity.access_keys;
        let key = keys.iter().find(|key| key.id == value("AccessKeyID"));
        let key = key.ok_or_else(|| unauthenticated("InvalidClientTokenId: no such access key"))?;
        if !matches(key, value("SecretAccessKey")) {
            return Err(unauthenticated(
                "SignatureDoesNotMatch: not with that secret access key",
            ));
        }
        let expires = key.expires.map(|at| self.world.head.start + at.0);
        if expires.is_some_and(|expires| now >= expires) {
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
        &mut self,
        now: u64,
        request: &SessionRequest,
        link: &Value,
        source: Option<Who>,
        waiting: &mut Waiting,
    ) -> Result<Who, Failure> {
        let arn = text(link, "arn");
        self.sts_trouble(now, request, ASSUME, arn, waiting)?;
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
        Ok(assumed(role, session, Some(now.saturating_add(millis))))
    }

    fn assume_by_token(
        &mut self,
        now: u64,
        request: &SessionRequest,
        link: &Value,
        waiting: &mut Waiting,
    ) -> Result<Who, Failure> {
        let arn = text(link, "arn");
        self.sts_trouble(now, request, ASSUME_BY_TOKEN, arn, waiting)?;
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
        // What AWS gives for a token, if nobody asks for less.
        let millis = seconds(link, "expirationSeconds").min(LONGEST_CHAINED);
        Ok(assumed(role, namespace, Some(now.saturating_add(millis))))
    }

    fn role(&self, arn: &str) -> Result<&IamRole, Failure> {
        let role = self.config.identity.roles.iter().find(|role| role.arn == arn);
        // AWS does not tell who exists.
        role.ok_or_else(|| denied(format!("not authorized to assume {arn}")))
    }

    /// Asks whose the credentials are.
    fn caller(
        &mut self,
        now: u64,
        request: &SessionRequest,
        who: &mut Who,
        waiting: &mut Waiting,
    ) -> Result<(), Failure> {
        let arn = who.principal.arn.clone();
        if let Some(account) = self.sts_trouble(now, request, CALLER, &arn, waiting)? {
            who.principal.account = account;
        }
        Ok(())
    }

    /// What the scenario makes of one call; another account than the true one, if it says so.
    fn sts_trouble(
        &mut self,
        now: u64,
        request: &SessionRequest,
        operation: &str,
        arn: &str,
        waiting: &mut Waiting,
    ) -> Result<Option<String>, Failure> {
        let session = Session {
            cloud: String::new(),
            handle: None,
            owner: request.owner.clone(),
            tenant: String::new(),
            namespace: None,
        };
        let subject = Subject {
            operation,
            session: &session,
            vm: Some(arn.to_owned()),
        };
        match self.trouble(now, &subject) {
            Some(Trouble::Fail {
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
                    retry_after: retry_after.map(|after| after.0),
                    ..Failure::new(code, message)
                });
            }
            Some(Trouble::FailAfterwards { code }) => {
                return Err(Failure::new(
                    code,
                    format!("{operation} failed (by the scenario)"),
                ));
            }
            Some(Trouble::LoseRequest | Trouble::LoseAnswer | Trouble::HappenLate(_)) => waiting.lost = true,
            Some(Trouble::AnswerAfter(after)) => waiting.millis += after.0,
            Some(Trouble::LeadsTo(account)) => return Ok(Some(account)),
            _ => {}
        }
        Ok(None)
    }

    /// A session that this cloud gave and that has not expired, or none at all.
    pub(crate) fn authenticate(&self, at: u64, session: &Session) -> Result<(), Failure> {
        let Some(token) = &session.handle else {
            return Ok(());
        };
        let granted = self.world.sessions.get(token);
        let granted = granted.ok_or_else(|| unauthenticated("the session is not known here"))?;
        match granted.expires.is_some_and(|expires| at >= expires) {
            true => Err(unauthenticated("ExpiredToken: the session has expired")),
            false => Ok(()),
        }
    }

    /// The account that a session acts in; none where nobody has one.
    pub(crate) fn account(&self, session: &Session) -> Option<&str> {
        match &session.handle {
            Some(token) => self
                .world
                .sessions
                .get(token)
                .map(|granted| granted.account.as_str()),
            None => self
                .config
                .identity
                .host
                .as_ref()
                .map(|host| host.account.as_str()),
        }
    }

    /// Whether something is in the account that a session acts in. Of what is not, nothing is told.
    pub(crate) fn sees(&self, session: &Session, stamp: &Stamp) -> bool {
        self.account(session) == stamp.account.as_deref()
    }

    /// What a request stamps on what it makes.
    pub(crate) fn stamp(&self, request: &CloudRequest) -> Stamp {
        let Session { owner, tenant, .. } = request.session.clone();
        Stamp {
            owner,
            tenant,
            key: request.key.clone(),
            account: self.account(&request.session).map(str::to_owned),
        }
    }

    /// Where a name is unique: in this place of the session's account.
    pub(crate) fn place(&self, session: &Session, place: Value) -> String {
        match self.account(session) {
            None => place.to_string(),
            Some(account) => json!([account, place]).to_string(),
        }
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

/// Milliseconds.
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
