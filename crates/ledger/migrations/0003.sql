-- What pages of runs and the figures of waiting are read from.

ALTER TABLE runs ADD COLUMN started_at BIGINT NOT NULL DEFAULT 0;
-- How often judges claimed it.
ALTER TABLE runs ADD COLUMN judgement_version BIGINT NOT NULL DEFAULT 0;
-- How long its task could have started before it did. Not part of the run: a run that was
-- there before this column, or was imported, has none.
ALTER TABLE runs ADD COLUMN waited_millis BIGINT;

CREATE INDEX runs_started ON runs (started_at, id);
CREATE INDEX runs_status ON runs (status, started_at, id);
CREATE INDEX runs_judged ON runs (started_at, id) WHERE judgement_version > 0;
CREATE INDEX runs_waited ON runs (waited_millis) WHERE waited_millis IS NOT NULL;
