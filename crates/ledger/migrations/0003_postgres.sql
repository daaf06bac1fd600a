UPDATE runs SET started_at = CAST(CAST(doc AS json) ->> 'started_at' AS BIGINT),
    judgement_version = CAST(CAST(doc AS json) ->> 'judgement_version' AS BIGINT);
