-- Every bid with the number of its channel: known by the channel's name, or written in the url. A bid with neither
-- is left out.
WITH numbered AS (
    SELECT
        *,
        CASE
            WHEN LOWER(channel) = 'apple' THEN '0'
            WHEN LOWER(channel) = 'google' THEN '1'
            WHEN LOWER(channel) = 'facebook' THEN '2'
            WHEN LOWER(channel) = 'baidu' THEN '3'
            -- An extract without a match would be empty text, not nothing.
            WHEN regexp_like(url, '(&|^)channel_id=([^&]*)') THEN regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
        END AS channel_id
    FROM bid
)
SELECT auction, bidder, price, channel, channel_id
FROM numbered
WHERE channel_id IS NOT NULL
