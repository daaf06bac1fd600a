-- What was read or remembered must still be so when it is written. A row that says otherwise
-- is refused here, and with it everything that was to be written.
CREATE TABLE ledger_compared (same BIGINT NOT NULL CHECK (same = 1));
