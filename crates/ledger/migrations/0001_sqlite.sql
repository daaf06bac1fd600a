-- Events are appended, never changed.
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events cannot be changed'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events cannot be deleted'); END;
-- INSERT OR REPLACE deletes without asking the trigger above.
CREATE TRIGGER events_no_replace BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events
    WHERE seq = NEW.seq OR (task_id = NEW.task_id AND version = NEW.version))
BEGIN SELECT RAISE(ABORT, 'events cannot be replaced'); END;
