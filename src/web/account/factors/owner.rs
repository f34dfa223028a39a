//! What somebody changes of their second factors, by a form and by a call alike: only after they have proved lately who they
//! are, and with a record of it.

use crate::accounts::{
    AddRefusal, AuthenticatedSession, Factor, FactorProof, Factors, Passkey, PasskeyId, PasskeyLabel,
    RecoveryCode, SessionToken, TotpCode, TotpSecret,
};
use crate::audit::{Action, AuditEvent, EventSubject, Outcome};
use crate::web::http::page::Requester;
use crate::web::http::{Browser, Problem, Services, WebError};
use crate::web::second_step::{refuse_while_upgrading, require_confirmed};
use crate::webauthn::Attestation;

/// The name of the switch in events, beside those of factors.
const SWITCH: &str = "second-step";

/// A passkey that was added, and the recovery codes that came with it: none if there were some.
pub type AddedPasskey = (Passkey, Vec<RecoveryCode>);

pub struct FactorOwner<'a> {
    sender: &'a Requester,
    services: &'a Services,
    who: &'a AuthenticatedSession,
}

impl<'a> FactorOwner<'a> {
    /// Refused if it was not proved lately who is signed in: by what is still there, however long the request was on its
    /// way since its session was looked up.
    pub async fn confirmed(
        sender: &'a Requester,
        services: &'a Services,
        who: &'a AuthenticatedSession,
    ) -> Result<Self, WebError> {
        let token = sender.session_token().and_then(SessionToken::parse).ok_or(Problem::Unauthenticated)?;
        let now = services.sessions.recognise(&token).await?.ok_or(Problem::Unauthenticated)?;
        require_confirmed(services, &now).await?;
        Ok(Self { sender, services, who })
    }

    fn factors(&self) -> &Factors {
        self.services.factor_verifier.factors()
    }

    pub async fn propose_totp(&self) -> Result<TotpSecret, WebError> {
        refuse_while_upgrading(self.services).await?;
        Ok(self.factors().propose_totp(self.who.account.id, self.who.session.id).await?)
    }

    /// Takes an app into use; None if the code is not that of the app that was proposed.
    pub async fn use_totp(&self, code: &TotpCode) -> Result<Option<Vec<RecoveryCode>>, WebError> {
        refuse_while_upgrading(self.services).await?;
        let AuthenticatedSession { account, session } = self.who;
        let used = self.factors().confirm_totp(account.id, session.id, code).await?;
        let Some((codes, proof)) = used else { return Ok(None) };
        self.added(&proof).await?;
        Ok(Some(codes))
    }

    pub async fn remove_totp(&self) -> Result<(), WebError> {
        let AuthenticatedSession { account, session } = self.who;
        if self.factors().remove_totp(account.id, session.id).await? {
            self.record(Action::FactorRemoved, Factor::Totp.into());
        }
        Ok(())
    }

    /// Makes new codes; None if there is nothing that they could stand in for.
    pub async fn renew_codes(&self) -> Result<Option<Vec<RecoveryCode>>, WebError> {
        let (factors, account) = (self.factors(), self.who.account.id);
        if factors.of(account).await?.is_empty() {
            return Ok(None);
        }
        let codes = factors.renew_recovery_codes(account, self.who.session.id).await?;
        self.record(Action::FactorAdded, Factor::Recovery.into());
        Ok(Some(codes))
    }

    pub async fn add_passkey(
        &self,
        made: &Attestation,
        label: &PasskeyLabel,
    ) -> Result<Result<AddedPasskey, AddRefusal>, WebError> {
        refuse_while_upgrading(self.services).await?;
        let browser = self.sender.edge.browser(self.sender.request().headers());
        let browser = browser.as_ref().map(Browser::bytes);
        let passkeys = self.services.factor_verifier.passkeys();
        let (passkey, codes, proof) = match passkeys.add(&self.who.session, made, browser, label).await? {
            Ok(added) => added,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.added(&proof).await?;
        Ok(Ok((passkey, codes)))
    }

    /// False if there is no such one.
    pub async fn remove_passkey(&self, id: &str) -> Result<bool, WebError> {
        let Some(id) = PasskeyId::parse(id) else { return Ok(false) };
        let AuthenticatedSession { account, session } = self.who;
        let removed = self.services.factor_verifier.passkeys().remove(account.id, session.id, id).await?;
        if removed {
            self.record(Action::FactorRemoved, Factor::Passkey.into());
        }
        Ok(removed)
    }

    /// Turns the second step of sign-ins on or off. False if there is nothing to ask for.
    pub async fn ask(&self, asks: bool) -> Result<bool, WebError> {
        let (factors, account) = (self.factors(), self.who.account.id);
        if !factors.ask(account, asks).await? {
            return Ok(factors.policy(account, "").await?.asks == asks);
        }
        self.record(if asks { Action::FactorAdded } else { Action::FactorRemoved }, SWITCH);
        Ok(true)
    }

    /// The browser in which it was set up has guesses of its own from now on.
    async fn added(&self, proof: &FactorProof) -> Result<(), WebError> {
        let account = &self.who.account;
        let known = self.sender.known_devices().at(account.id);
        if let Some(device) = known.filter(|device| device.password_version == account.password_version) {
            self.factors().note_device(account.id, device.id, proof).await?;
        }
        self.record(Action::FactorAdded, proof.factor.into());
        Ok(())
    }

    fn record(&self, action: Action, name: &'static str) {
        let (audit, address) = (&self.services.audit, self.sender.client.subject());
        audit.record(AuditEvent {
            name: Some(name),
            account: Some(self.who.account.recorded()),
            address: Some(EventSubject::Address(address.as_ref())),
            ..AuditEvent::new(audit.now(), action, Outcome::Ok)
        });
    }
}
