//! Twilio, Alibaba Cloud and Tencent Cloud as they are documented: what they receive, and what their answers mean.

use std::time::Duration;

use base64::Engine;
use gatehouse::sms::{DeliveryReport, OutOfService, ReportError, ReportState, ReportedMessage};
use wiremock::ResponseTemplate;

use super::gateways::{
    NUMBER, TEXT, accepted, field, fields, gateway, judged, received, refused, refused_all, reported,
    secret_file, some_id, try_open, unknown,
};
use super::scripted::{Provider, section};

fn twilio(uri: &str, token: &str, from: &str) -> String {
    format!(
        "[server]\npublic_url = 'https://login.example'\n[sms]\ngateway = 'twilio'\n[sms.twilio]\n\
         url = '{uri}'\naccount_sid = 'AC0123'\nauth_token = 'file:{token}'\nfrom = '{from}'"
    )
}

#[tokio::test]
async fn twilio_is_asked_as_it_describes() {
    let token = secret_file("t0ken\n");
    let path = token.path().display().to_string();
    let answer = r#"{"sid":"SM11112222333344445555666677778888","status":"queued","error_code":null}"#;
    let ok = || ResponseTemplate::new(201).set_body_string(answer);
    let (request, id) = received(|uri| twilio(uri, &path, "+15005550006"), ok()).await;
    assert_eq!(request.url.path(), "/2010-04-01/Accounts/AC0123/Messages.json");
    let basic = base64::engine::general_purpose::STANDARD.encode("AC0123:t0ken");
    assert_eq!(request.headers["authorization"], format!("Basic {basic}").as_str());
    let form = fields(&request.body);
    assert_eq!((field(&form, "To"), field(&form, "Body")), (NUMBER, TEXT));
    assert_eq!(field(&form, "From"), "+15005550006");
    let callback = url::Url::parse(field(&form, "StatusCallback")).unwrap();
    assert_eq!(callback.path(), "/sms/reports/twilio");
    assert!(callback.query().unwrap().starts_with(&format!("id={id}&")));

    let service = "MG0123456789abcdef0123456789abcdef";
    let (request, _) = received(|uri| twilio(uri, &path, service), ok()).await;
    assert_eq!(field(&fields(&request.body), "MessagingServiceSid"), service);
}

#[tokio::test]
async fn twilios_answers_are_understood() {
    let token = secret_file("t0ken");
    let path = token.path().display().to_string();
    let cases = [
        (201, r#"{"sid":"SM123456","status":"queued","error_code":null}"#, accepted(Some("SM123456"))),
        (201, r#"{"sid":"SM1","status":"accepted"}"#, accepted(Some("SM1"))),
        (
            201,
            r#"{"sid":"SM1","status":"failed","error_code":30007}"#,
            refused("accepted the message, but failed at once (30007)"),
        ),
        (201, r#"{"sid":"SM1","status":"surprising"}"#, unknown("sent an answer without a message id")),
        (201, r#"{"status":"queued"}"#, unknown("sent an answer without a message id")),
        (200, "<html>", unknown("sent an answer that is not JSON")),
        (
            400,
            r#"{"code":21211,"message":"Invalid 'To' Phone Number: +8613800138000","status":400}"#,
            refused("answered 400 (21211)"),
        ),
        (
            401,
            r#"{"code":20003,"message":"Authenticate","status":401}"#,
            refused_all(OutOfService::Credentials, "answered 401 (20003)"),
        ),
        (403, r#"{"code":20005,"status":403}"#, refused_all(OutOfService::Account, "answered 403 (20005)")),
        (400, r#"{"code":21660,"status":400}"#, refused_all(OutOfService::Signature, "answered 400 (21660)")),
        (400, r#"{"code":21408,"status":400}"#, refused("answered 400 (21408)")),
        (400, r#"{"code":21610,"status":400}"#, refused("answered 400 (21610)")),
        (
            429,
            r#"{"code":20429,"message":"Too Many Requests","status":429}"#,
            refused("answered 429 (20429)"),
        ),
        (404, "nothing here", refused("answered 404")),
        (503, r#"{"code":20503,"status":503}"#, unknown("answered 503 (20503)")),
    ];
    judged(|uri| twilio(uri, &path, "+15005550006"), &cases).await;
}

fn aliyun(uri: &str, secret: &str) -> String {
    format!(
        "[sms]\ngateway = 'aliyun'\n[sms.aliyun]\nurl = '{uri}'\naccess_key_id = 'LTAI0123'\n\
         access_key_secret = 'file:{secret}'\nsign_name = '门房'\ntemplate_code = 'SMS_0123'"
    )
}

#[tokio::test]
async fn aliyun_is_asked_as_it_describes_and_its_reports_are_ours_alone() {
    let secret = secret_file("key");
    let path = secret.path().display().to_string();
    let ok = ResponseTemplate::new(200).set_body_string(r#"{"Code":"OK","BizId":"9006197469364984^0"}"#);
    let (request, id) = received(|uri| aliyun(uri, &path), ok).await;
    let query = fields(request.url.query().unwrap().as_bytes());
    assert_eq!((field(&query, "PhoneNumbers"), field(&query, "SignName")), ("13800138000", "门房"));
    assert_eq!(field(&query, "TemplateCode"), "SMS_0123");
    assert_eq!(field(&query, "TemplateParam"), r#"{"code":"314159"}"#);
    assert_eq!(
        (request.headers["x-acs-action"].to_str().unwrap(), request.method.as_str()),
        ("SendSms", "POST")
    );
    assert_eq!(request.headers["x-acs-version"], "2017-05-25");
    assert_eq!(request.headers["x-acs-date"], "2023-10-26T10:22:32Z");
    let signed = request.headers["authorization"].to_str().unwrap();
    assert!(
        signed.starts_with("ACS3-HMAC-SHA256 Credential=LTAI0123,SignedHeaders=host;x-acs-action;"),
        "{signed}"
    );

    let gateway = gateway(&aliyun("https://sms.example", &path));
    let out_id = field(&query, "OutId");
    assert!(out_id.len() <= 64);
    let pushed = |out_id: &str, success: bool, code: &str| {
        serde_json::json!({
            "phone_number": "13800138000", "send_time": "2026-01-01 00:00:00", "success": success,
            "report_time": "2026-01-01 00:00:05", "err_code": code, "err_msg": "13800138000",
            "sms_size": "1", "biz_id": "9006197469364984^0", "out_id": out_id,
        })
    };
    let report = |list: &[serde_json::Value]| {
        reported(&*gateway, "", "application/json", &serde_json::to_string(list).unwrap())
    };
    let expected = |state, detail: &str| DeliveryReport {
        message: ReportedMessage::Id(id),
        state,
        detail: Some(detail.to_owned()),
    };
    let forged = format!("{}{}", some_id(), &out_id[32..]);
    assert_eq!(
        report(&[
            pushed(&forged, true, "DELIVERED"),
            pushed(out_id, true, "DELIVERED"),
            pushed("", true, "x")
        ]),
        Ok(vec![expected(ReportState::Delivered, "DELIVERED")])
    );
    assert_eq!(
        report(&[pushed(out_id, false, "MOBILE_SEND_LIMIT")]),
        Ok(vec![expected(ReportState::Failed, "MOBILE_SEND_LIMIT")])
    );
    assert_eq!(report(&[pushed(&forged, true, "DELIVERED")]), Err(ReportError::NotAuthentic));
    assert_eq!(report(&[]), Err(ReportError::NotAuthentic));
    assert!(matches!(reported(&*gateway, "", "", "{}"), Err(ReportError::Unreadable(_))));
    assert_eq!(gateway.acknowledgement().unwrap().body, r#"{"code":0,"msg":"OK"}"#);
}

#[tokio::test]
async fn aliyuns_answers_are_understood() {
    let secret = secret_file("key");
    let path = secret.path().display().to_string();
    let limit =
        r#"{"Code":"isv.BUSINESS_LIMIT_CONTROL","Message":"触发小时级流控Permits:5","RequestId":"x"}"#;
    let cases = [
        (200, r#"{"Code":"OK","Message":"OK","BizId":"12345678^0"}"#, accepted(Some("12345678^0"))),
        (200, r#"{"Code":"OK"}"#, accepted(None)),
        (200, limit, refused("answered isv.BUSINESS_LIMIT_CONTROL")),
        (200, r#"{"Code":"isv.MOBILE_NUMBER_ILLEGAL"}"#, refused("answered isv.MOBILE_NUMBER_ILLEGAL")),
        (
            200,
            r#"{"Code":"isp.RAM_PERMISSION_DENY"}"#,
            refused_all(OutOfService::Credentials, "answered isp.RAM_PERMISSION_DENY"),
        ),
        (
            200,
            r#"{"Code":"isv.SMS_SIGNATURE_ILLEGAL"}"#,
            refused_all(OutOfService::Signature, "answered isv.SMS_SIGNATURE_ILLEGAL"),
        ),
        (
            200,
            r#"{"Code":"isv.SMS_TEMPLATE_ILLEGAL"}"#,
            refused_all(OutOfService::Template, "answered isv.SMS_TEMPLATE_ILLEGAL"),
        ),
        (
            200,
            r#"{"Code":"isv.AMOUNT_NOT_ENOUGH"}"#,
            refused_all(OutOfService::Balance, "answered isv.AMOUNT_NOT_ENOUGH"),
        ),
        (200, r#"{"Code":"VALVE:M_MC"}"#, refused("answered VALVE:M_MC")),
        (200, r#"{"Code":"isp.SYSTEM_ERROR"}"#, unknown("answered isp.SYSTEM_ERROR")),
        (200, r#"{"Code":"SomethingNew"}"#, unknown("answered SomethingNew")),
        (200, r#"{"Message":"OK"}"#, unknown("sent an answer without a code")),
        (200, "OK", unknown("sent an answer without a code")),
        (
            400,
            r#"{"Code":"SignatureDoesNotMatch"}"#,
            refused_all(OutOfService::Credentials, "answered 400 (SignatureDoesNotMatch)"),
        ),
        (
            404,
            r#"{"Code":"InvalidAccessKeyId.NotFound"}"#,
            refused_all(OutOfService::Credentials, "answered 404 (InvalidAccessKeyId.NotFound)"),
        ),
        (400, r#"{"Code":"Throttling.User"}"#, refused("answered 400 (Throttling.User)")),
        (500, r#"{"Code":"InternalError"}"#, unknown("answered 500 (InternalError)")),
        (503, "", unknown("answered 503")),
    ];
    judged(|uri| aliyun(uri, &path), &cases).await;
}

fn tencent(uri: &str, secret: &str) -> String {
    format!(
        "[server]\npublic_url = 'https://login.example'\n[sms]\ngateway = 'tencent'\n{}region = 'ap-nanjing'",
        section(Provider::Tencent, uri, secret)
    )
}

#[tokio::test]
async fn tencent_is_asked_as_it_describes() {
    let secret = secret_file("key");
    let path = secret.path().display().to_string();
    let ok = ResponseTemplate::new(200).set_body_string(
        r#"{"Response":{"SendStatusSet":[{"Code":"Ok","SerialNo":"5000:1045710669157053657849499619"}]}}"#,
    );
    let (request, id) = received(|uri| tencent(uri, &path), ok).await;
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/"));
    for (name, value) in [
        ("x-tc-action", "SendSms"),
        ("x-tc-version", "2021-01-11"),
        ("x-tc-timestamp", "1698315752"),
        ("x-tc-region", "ap-nanjing"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(request.headers[name], value, "{name}");
    }
    let signed = request.headers["authorization"].to_str().unwrap();
    assert!(
        signed.starts_with("TC3-HMAC-SHA256 Credential=AKID0123/2023-10-26/sms/tc3_request, "),
        "{signed}"
    );
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let context = body["SessionContext"].as_str().unwrap().to_owned();
    assert_eq!(
        body,
        serde_json::json!({
            "PhoneNumberSet": [NUMBER], "SmsSdkAppId": "1400006666", "SignName": "门房", "TemplateId": "1110",
            "TemplateParamSet": ["314159"], "SessionContext": context,
        })
    );

    let gateway = gateway(&tencent("https://sms.example", &path));
    let url = url::Url::parse(&gateway.reports_to().unwrap()).unwrap();
    assert_eq!((url.host_str(), url.path()), (Some("login.example"), "/sms/reports/tencent"));
    let secret = url.query().unwrap();
    let pushed = |sid: &str, ext: &str, status: &str| {
        serde_json::json!({
            "user_receive_time": "2026-01-01 00:00:05", "nationcode": "86", "mobile": "13800138000",
            "report_status": status, "errmsg": "DELIVRD", "description": "13800138000", "sid": sid, "ext": ext,
        })
    };
    let report = |query: &str, list: &[serde_json::Value]| {
        reported(&*gateway, query, "application/json", &serde_json::to_string(list).unwrap())
    };
    let expected =
        |message, state| Ok(vec![DeliveryReport { message, state, detail: Some("DELIVRD".to_owned()) }]);
    let by_sid = ReportedMessage::Reference("5000:1".to_owned());
    assert_eq!(report(secret, &[pushed("5000:1", "", "FAIL")]), expected(by_sid, ReportState::Failed));
    let by_id = || ReportedMessage::Id(id);
    for query in [secret, ""] {
        let said = report(query, &[pushed("5000:1", &context, "SUCCESS")]);
        assert_eq!(said, expected(by_id(), ReportState::Delivered), "its context proves it at any address");
    }
    let forged = format!("{}{}", some_id(), &context[32..]);
    for query in ["", "token=", "token=0123456789abcdef0123456789abcdef", &secret[..secret.len() - 1]] {
        let said = report(query, &[pushed("5000:1", &forged, "SUCCESS")]);
        assert_eq!(said, Err(ReportError::NotAuthentic), "{query}");
    }
    assert_eq!(report(secret, &[]), Ok(vec![]));
    assert!(matches!(reported(&*gateway, secret, "", "{}"), Err(ReportError::Unreadable(_))));
    assert_eq!(gateway.acknowledgement().unwrap().body, r#"{"result":0,"errmsg":"OK"}"#);
}

#[tokio::test]
async fn tencents_answers_are_understood() {
    let secret = secret_file("key");
    let path = secret.path().display().to_string();
    let status = |code: &str| format!(r#"{{"Response":{{"SendStatusSet":[{{"Code":"{code}"}}]}}}}"#);
    let error =
        |code: &str| format!(r#"{{"Response":{{"Error":{{"Code":"{code}","Message":"13800138000"}}}}}}"#);
    let all = |why, code: &str| refused_all(why, &format!("answered {code}"));
    let about = |code: &str| refused(&format!("answered {code}"));
    let unclear = |code: &str| unknown(&format!("answered {code}"));
    let mut cases = vec![(200, status("Ok"), accepted(None))];
    for (code, why) in [
        ("FailedOperation.SignatureIncorrectOrUnapproved", OutOfService::Signature),
        ("FailedOperation.TemplateIncorrectOrUnapproved", OutOfService::Template),
        ("FailedOperation.InsufficientBalanceInSmsPackage", OutOfService::Balance),
        ("UnauthorizedOperation.ServiceSuspendDueToArrears", OutOfService::Balance),
        ("UnauthorizedOperation.SdkAppIdIsDisabled", OutOfService::Account),
        ("UnauthorizedOperation.SmsSdkAppIdVerifyFail", OutOfService::Credentials),
        ("AuthFailure.SignatureFailure", OutOfService::Credentials),
        ("AuthFailure.SecretIdNotFound", OutOfService::Credentials),
        ("UnsupportedRegion", OutOfService::Region),
    ] {
        cases.push((200, status(code), all(why, code)));
        cases.push((200, error(code), all(why, code)));
    }
    for code in ["LimitExceeded.PhoneNumberThirtySecondLimit", "InvalidParameterValue.IncorrectPhoneNumber"] {
        cases.push((200, status(code), about(code)));
    }
    for code in ["InternalError.Timeout", "InternalError.SendAndRecvFail", "SomethingNew"] {
        cases.push((200, status(code), unclear(code)));
        cases.push((200, error(code), unclear(code)));
    }
    cases.push((200, "{}".to_owned(), unknown("sent an answer without a code")));
    cases.push((200, "<html>".to_owned(), unknown("sent an answer without a code")));
    cases.push((400, String::new(), refused("answered 400")));
    cases.push((502, String::new(), unknown("answered 502")));
    let cases: Vec<_> =
        cases.iter().map(|(status, body, said)| (*status, body.as_str(), said.clone())).collect();
    judged(|uri| tencent(uri, &path), &cases).await;
}

#[test]
fn a_secret_that_is_not_there_is_named_before_anything_is_sent() {
    let config = aliyun("https://sms.example", "/nowhere/key");
    let wrong = try_open(&config, Duration::from_secs(1)).map(|_| ()).unwrap_err().to_string();
    assert!(wrong.starts_with("sms.aliyun.access_key_secret: /nowhere/key cannot be read: "), "{wrong}");
}
