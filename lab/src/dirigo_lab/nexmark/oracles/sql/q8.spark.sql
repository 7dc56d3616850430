-- Persons who registered and opened an auction within the same window of 10 s.
WITH newcomer AS (
    SELECT DISTINCT id, name, window(date_time, '10 seconds').start AS stime
    FROM person
),
opening AS (
    SELECT DISTINCT seller, window(date_time, '10 seconds').start AS stime
    FROM auction
)
SELECT newcomer.id, newcomer.name, newcomer.stime
FROM newcomer
JOIN opening ON opening.seller = newcomer.id AND opening.stime = newcomer.stime
