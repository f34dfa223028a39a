//! `/account/factors/code`: before they set a second step up, owners of accounts that only SMS codes open show that the
//! number is theirs.

use actix_web::web::Query;

use crate::accounts::AuthenticatedSession;
use crate::message::Purpose;
use crate::web::captcha::CaptchaBlock;
use crate::web::code::{CodeForm, CodePage, CodeStep, FACTORS};
use crate::web::form::{FormReply, NextFields, Notice};
use crate::web::http::{Next, PageRequest, Problem, ServicesData, WebResult};
use crate::web::second_step::{StepUp, only_phone, renewed, step_up};
use crate::web::session::{Member, OwnersForm};

use super::factors::{FORM, PATH};

pub async fn show(
    visit: PageRequest,
    Member(who): Member,
    query: Query<NextFields>,
    services: ServicesData,
) -> WebResult {
    let next = query.target(&visit, &visit.live(&services));
    let Some(phone) = only_phone(&who.session, &who.account) else {
        return Ok(visit.see_other(&Next::after(PATH, next.as_ref()), None));
    };
    let page = CodePage::new(&visit, &FACTORS, Some(who.account.login.as_str()), next);
    let page = page.at(CodeStep::asking(phone.as_str()));
    Ok(page.again(Notice::None, CaptchaBlock::Absent).respond(&visit))
}

pub async fn submit(visit: PageRequest, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, submit_once).await
}

async fn submit_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: CodeForm,
    services: ServicesData,
) -> WebResult {
    let live = visit.live(&services);
    let next = form.to.target(&visit, &live);
    let back = visit.see_other(&Next::after(PATH, next.as_ref()), None);
    let Some(own) = only_phone(&who.session, &who.account) else { return Ok(back) };
    let page = CodePage::new(&visit, &FACTORS, Some(who.account.login.as_str()), next);
    let show = page.shown_again(&visit, &live, &form.fields);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    page.before_entry(&reply, Purpose::Verify, &form).await?;
    let (to, code) = reply.read(&form.guarded, |errors| page.parse_both(&live, &form.fields, errors)).await?;
    if to.phone() != Some(own) {
        return Err(reply.refused(Problem::InvalidCode).await);
    }
    let shown = StepUp::Code(own.clone(), code);
    let factor = reply.told(step_up(&reply.actor(&form.guarded), &who.account, shown).await).await?;
    renewed(&visit, &services, factor, back).await
}
