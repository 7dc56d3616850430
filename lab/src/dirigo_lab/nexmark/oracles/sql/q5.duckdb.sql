-- Per window of 10 s that starts every 2 s, the auctions with the most bids. A bid lies in the window that starts
-- at its own 2 s step and in the four before.
WITH placed AS (
    SELECT
        auction,
        time_bucket(INTERVAL 2 SECONDS, date_time, TIMESTAMPTZ '1970-01-01 00:00:00+00')
            - to_seconds(2 * step) AS window_start
    FROM bid
    CROSS JOIN range(5) AS steps(step)
),
counted AS (
    SELECT window_start, auction, COUNT(*) AS num
    FROM placed
    GROUP BY window_start, auction
),
highest AS (
    SELECT window_start, MAX(num) AS num
    FROM counted
    GROUP BY window_start
)
SELECT counted.auction, counted.num
FROM counted
JOIN highest ON counted.window_start = highest.window_start AND counted.num = highest.num
