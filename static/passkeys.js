// Passkeys: asks the browser for one, puts what it answered into the form that the button stands in, and sends that.
"use strict";

{
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

  // Binary values travel in base64url. (Not every browser has parseRequestOptionsFromJSON() and toJSON().)
  const options = async (what) => {
    const body = JSON.stringify({ for: what });
    const answer = await fetch("/api/v1/passkeys/challenge", { method: "POST", headers: { "content-type": "application/json" }, body });
    const read = await answer.json();
    // The confirmation was too long ago, or the session has ended: the page says so.
    if (what !== "sign-in" && (answer.status === 403 || answer.status === 401)) location.reload();
    if (!answer.ok) throw new Error(read.title);
    read.challenge = bytes(read.challenge);
    if (read.user) read.user.id = bytes(read.user.id);
    for (const key of read.excludeCredentials ?? []) key.id = bytes(key.id);
    return read;
  };
  const told = ({ id, type, response }) => {
    const fields = { clientDataJSON: text(response.clientDataJSON) };
    for (const name of ["attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (response[name]) fields[name] = text(response[name]);
    }
    if (response.getTransports) fields.transports = response.getTransports();
    return JSON.stringify({ id, type, response: fields });
  };

  for (const box of document.querySelectorAll("[data-passkey]")) {
    const [input, button, said] = box.children;
    const { form } = input;
    const what = box.dataset.passkey;
    const ask = async (how) => {
      const publicKey = await options(what);
      const made = await navigator.credentials[what === "add" ? "create" : "get"]({ publicKey, ...how });
      input.value = told(made);
      // The passkey stands in for the fields of the form.
      form.noValidate = true;
      form.requestSubmit();
    };

    // While the page is open the browser offers passkeys in the field of the name; each challenge for less than it lasts.
    let quiet;
    const offer = async () => {
      if (what !== "sign-in" || !await window.PublicKeyCredential?.isConditionalMediationAvailable?.()) return;
      const mine = quiet = new AbortController();
      const old = setTimeout(() => mine.abort("old"), 240000);
      await ask({ mediation: "conditional", signal: mine.signal }).catch(() => {});
      clearTimeout(old);
      if (mine.signal.reason === "old") offer();
    };

    button.addEventListener("click", async () => {
      quiet?.abort();
      said.hidden = true;
      button.disabled = true;
      try {
        if (!window.PublicKeyCredential) throw new DOMException("", "NotSupportedError");
        await ask();
      } catch (error) {
        const why = { NotAllowedError: "cancelled", AbortError: "cancelled", InvalidStateError: "known", SecurityError: "address", NotSupportedError: "unsupported", ConstraintError: "unverified" }[error.name];
        said.textContent = box.dataset[why ?? "failed"];
        said.hidden = false;
        offer();
      }
      button.disabled = false;
    });
    // A browser that goes back fills in what was sent.
    input.value = "";
    box.hidden = false;
    offer();
  }
}
