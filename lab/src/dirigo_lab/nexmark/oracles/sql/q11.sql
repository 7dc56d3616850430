-- Per bidder, its sessions: a session ends where the next bid is more than 10 s away.
WITH marked AS (
    SELECT
        bidder, date_time, event_number,
        CASE
            WHEN date_time <= LAG(date_time) OVER in_order + INTERVAL 10 SECONDS THEN 0
            ELSE 1
        END AS opens
    FROM bid
    WINDOW in_order AS (PARTITION BY bidder ORDER BY date_time, event_number)
),
numbered AS (
    SELECT
        bidder, date_time,
        SUM(opens) OVER (
            PARTITION BY bidder ORDER BY date_time, event_number ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS session
    FROM marked
)
SELECT
    bidder, COUNT(*) AS bid_count,
    MIN(date_time) AS starttime, MAX(date_time) + INTERVAL 10 SECONDS AS endtime
FROM numbered
GROUP BY bidder, session
