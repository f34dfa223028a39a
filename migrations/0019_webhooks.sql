-- What receivers of webhooks are told: one row for each notice and receiver. A row stays a while after it was
-- delivered, so that no instance tells it again. See 0001 for what this folder keeps to.
CREATE TABLE webhook_deliveries (
    notice     TEXT   NOT NULL,                    -- webhook-id: the same from whichever instance it comes
    endpoint   TEXT   NOT NULL,                    -- a hash of the receiver's URL
    body       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    attempts   BIGINT NOT NULL DEFAULT 0,
    next_at    BIGINT,                             -- when it is tried next; none: it was delivered, or given up
    PRIMARY KEY (notice, endpoint)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX webhook_deliveries_old ON webhook_deliveries (created_at);
