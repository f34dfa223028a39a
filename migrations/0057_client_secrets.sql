-- Secrets of clients that are kept here (secret = "stored"). See 0001 for what this folder keeps to.
CREATE TABLE client_secrets (
    id         TEXT   PRIMARY KEY NOT NULL,
    client     TEXT   NOT NULL,        -- its client_id
    sealed     TEXT   NOT NULL,        -- under a key of the key file
    created_at BIGINT NOT NULL
);
CREATE INDEX client_secrets_by_client ON client_secrets (client);
