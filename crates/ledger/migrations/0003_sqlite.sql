UPDATE runs SET started_at = json_extract(doc, '$.started_at'),
    judgement_version = json_extract(doc, '$.judgement_version');
